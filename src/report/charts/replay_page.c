/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a replay: findings, charts, their values and tables, in one file. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "ckpt/checkpoint_model.h"
#include "replay/replay_result.h"
#include "step/hyperparameters.h"
#include "text/json.h"
#include "report/charts/page.h"
#include "report/charts/replay_chart.h"
#include "report/replay_figures.h"
#include "report/replay_findings.h"
#include "tersor/version.h"

/* The most rows of tables. */
#define STEPS_SHOWN 200
#define TENSORS_SHOWN 1000

/* --- Values for the script -------------------------------------------------------------------- */

/* JSON has no infinity, but readers take a number that is too large for one. */
static void put_number(struct tsr_text *json, const char *lead, double value)
{
	if (isnan(value))
		tsr_text_printf(json, "%snull", lead);
	else if (isinf(value))
		tsr_text_printf(json, "%s1e999", lead);
	else
		tsr_text_printf(json, "%s%.*g", lead, value >= 1e4 && value < 1e10 ? 10 : 4, value);
}

static void put_values(struct tsr_text *json, const char *key, const double *values, size_t n)
{
	tsr_json_open(json, key, '[');
	for (size_t i = 0; i < n; i++)
		put_number(json, i ? "," : "", values[i]);
	tsr_json_close(json, ']');
}

static void put_panel_data(struct tsr_text *json, const struct tsr_curve *c, size_t n)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "title", c->kind->title);
	tsr_json_put_string(json, "unit", c->kind->unit);
	put_values(json, "total", c->total, n);
	put_values(json, "worst", c->worst, n);
	tsr_json_open(json, "tensor", '[');
	for (size_t i = 0; i < n; i++)
		tsr_json_put_u64(json, NULL, c->tensor[i]);
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

static void put_json(struct tsr_text *json, const struct tsr_curves *c)
{
	const struct tsr_replay *r = c->replay;

	tsr_json_open(json, NULL, '{');
	tsr_json_put_u64(json, "first", r->nsteps ? r->steps[0].step : 0);
	tsr_json_put_u64(json, "n", r->nsteps);
	tsr_json_put_strings(json, "names", r->params, r->nparams);
	tsr_json_open(json, "panels", '[');
	for (unsigned i = 0; i < c->n; i++)
		put_panel_data(json, &c->curve[i], r->nsteps);
	tsr_json_close(json, ']');
	tsr_json_close(json, '}');
}

/* --- What was replayed ------------------------------------------------------------------------ */

static void put_state(struct tsr_text *html, const struct tsr_replay *r)
{
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_coding *c = &r->coding[p];

		if (!c->codec)
			continue;
		tsr_text_printf(html, "%s%s <code>%s</code>", p ? ", " : "",
				tsr_kind_name(tsr_part_kind((enum tsr_part)p)), c->codec->name);
		if (c->codec->grouped)
			tsr_text_printf(html, " with <code>%s</code> scales of %u",
					tsr_scale_name(c->scale), c->group);
	}
}

static void put_lr(struct tsr_text *html, const struct tsr_replay *r)
{
	double least, most;

	if (!tsr_replay_lr_range(r, &least, &most))
		return;
	tsr_text_printf(html, "<dt>learning rate</dt><dd>%.6g", least);
	if (least < most)
		tsr_text_printf(html, " to %.6g", most);
	tsr_text_puts(html, "</dd>\n");
}

static void put_hyper(struct tsr_text *html, const struct tsr_replay *r)
{
	for (size_t g = 0; g < r->ngroups && r->hyper; g++) {
		const char *lead = "";

		tsr_text_puts(html, "<dt>hyperparameters");
		if (r->ngroups > 1)
			tsr_text_printf(html, " %zu", g + 1);
		tsr_text_puts(html, "</dt><dd>");
		for (unsigned h = 0; h < TSR_HYPER_COUNT; h++) {
			const enum tsr_hyper_name name = (enum tsr_hyper_name)h;

			if (!tsr_replay_has_hyper(r, g, name))
				continue;
			tsr_text_printf(html, "%s%s %.6g", lead, tsr_hyper_name(name),
					r->hyper[g].value[name]);
			lead = ", ";
		}
		tsr_text_puts(html, "</dd>\n");
	}
}

static void put_what(struct tsr_text *html, const struct tsr_replay *r)
{
	tsr_text_puts(html, "<dl class=\"what\">\n");
	if (r->source) {
		tsr_text_puts(html, "<dt>checkpoint</dt><dd>");
		tsr_html_put_text(html, r->source->path);
		tsr_text_puts(html, "</dd>\n");
	}
	if (r->recording) {
		tsr_text_puts(html, "<dt>recording</dt><dd>");
		tsr_html_put_text(html, r->recording);
		tsr_text_puts(html, "</dd>\n");
	}
	tsr_text_printf(html, "<dt>optimizer</dt><dd><code>%s</code></dd>\n",
			tsr_optimizer_name(r->optimizer));
	put_hyper(html, r);
	tsr_text_puts(html, "<dt>state</dt><dd>");
	put_state(html, r);
	tsr_text_puts(html, "</dd>\n<dt>parameters</dt><dd>");
	tsr_html_put_count(html, "span", tsr_replay_numel(r, SIZE_MAX));
	tsr_text_printf(html, " in %zu tensors</dd>\n<dt>steps</dt><dd>", r->nparams);
	tsr_html_put_count(html, "span", r->nsteps);
	if (r->nsteps)
		tsr_text_printf(html, ", %" PRIu64 " to %" PRIu64, r->steps[0].step,
				r->steps[r->nsteps - 1].step);
	if (r->nskipped)
		tsr_text_printf(html, "; %zu skipped, whose gradients are not finite", r->nskipped);
	tsr_text_puts(html, "</dd>\n");
	put_lr(html, r);
	tsr_text_puts(html, "<dt>made by</dt><dd>tersor " TSR_VERSION "</dd>\n</dl>\n");
}

static void put_findings(struct tsr_text *html, const struct tsr_replay *r)
{
	struct tsr_findings f;

	tsr_replay_find(r, &f);
	if (!f.n)
		return;
	tsr_text_puts(html, "<ul class=\"findings\">\n");
	for (unsigned i = 0; i < f.n; i++) {
		const char *level = tsr_finding_level_name(f.item[i].level);

		tsr_text_printf(html, "<li class=\"%s\"><b>%s</b> ", level, level);
		tsr_html_put_text(html, f.item[i].text);
		tsr_text_puts(html, "</li>\n");
	}
	tsr_text_puts(html, "</ul>\n");
}

/* --- Tables ----------------------------------------------------------------------------------- */

static void put_cell(struct tsr_text *html, const struct tsr_curve *c, double value, bool worst)
{
	char text[24];

	tsr_text_puts(html, worst ? "<td class=\"worst\">" : "<td>");
	if (isnan(value)) {
		tsr_text_puts(html, "\xe2\x80\x93");
	} else if (isinf(value)) {
		tsr_text_puts(html, "\xe2\x88\x9e");
	} else if (value > 0 && c->kind->figure == TSR_FIGURE_WEIGHT_ULP) {
		tsr_html_put_count(html, "span", (uint64_t)value);
	} else {
		tsr_figure_format(text, value, c->kind->percent);
		tsr_text_puts(html, text);
	}
	tsr_text_puts(html, "</td>");
}

static void put_heads(struct tsr_text *html, const struct tsr_curves *c)
{
	for (unsigned i = 0; i < c->n; i++)
		tsr_text_printf(html, "<th>%s<small>%s</small></th>", c->curve[i].kind->title,
				*c->curve[i].kind->unit ? c->curve[i].kind->unit : "&nbsp;");
	tsr_text_puts(html, "</tr></thead>\n<tbody>\n");
}

/* The first of the largest values above 0; SIZE_MAX if there are none. */
static size_t first_largest(const double *values, size_t n)
{
	size_t at = SIZE_MAX;
	double most = 0;

	for (size_t i = 0; i < n; i++) {
		if (!(values[i] > most))
			continue;
		most = values[i];
		at = i;
	}
	return at;
}

/* The frame of a table; the caller puts the first heads, then the rows. */
static void open_table(struct tsr_text *html)
{
	tsr_text_puts(html, "<div class=\"scroll\" tabindex=\"0\"><table class=\"figures\">\n"
			    "<thead><tr>");
}

static void close_table(struct tsr_text *html)
{
	tsr_text_puts(html, "</tbody></table></div>\n");
}

static void put_step(struct tsr_text *html, const struct tsr_curves *c, size_t step,
		     const size_t *worst)
{
	const struct tsr_replay_step *s = &c->replay->steps[step];

	tsr_text_printf(html, "<tr><td>%" PRIu64 "%s</td>", s->step,
			s->skipped ? " (skipped)" : "");
	if (s->lr)
		tsr_text_printf(html, "<td>%.6g</td>", s->lr[0]);
	else
		tsr_text_puts(html, "<td>\xe2\x80\x93</td>");
	for (unsigned i = 0; i < c->n; i++)
		put_cell(html, &c->curve[i], c->curve[i].total[step], worst[i] == step);
	tsr_text_puts(html, "</tr>\n");
}

static void put_steps(struct tsr_text *html, const struct tsr_curves *c)
{
	const struct tsr_replay *r = c->replay;
	size_t worst[TSR_CURVES_MAX];

	tsr_text_puts(html, "<h2>Steps</h2>\n<p>Over all tensors; the largest of each column is "
			    "bold.");
	if (r->nsteps > STEPS_SHOWN)
		tsr_text_puts(html, " Steps are evenly spaced, with the largest among them.");
	if (r->ngroups > 1)
		tsr_text_puts(html, " The learning rate is that of the first group.");
	tsr_text_puts(html, "</p>\n");
	open_table(html);
	tsr_text_puts(html, "<th>Step</th><th>lr<small>&nbsp;</small></th>");
	put_heads(html, c);
	for (unsigned i = 0; i < c->n; i++)
		worst[i] = first_largest(c->curve[i].total, r->nsteps);
	for (size_t s = 0; s < r->nsteps; s++) {
		bool shown = tsr_replay_in_sample(r, s, STEPS_SHOWN);

		for (unsigned i = 0; i < c->n; i++)
			shown = shown || worst[i] == s;
		if (shown)
			put_step(html, c, s, worst);
	}
	close_table(html);
}

/* The largest value of a tensor over the steps. */
static double largest_of(const struct tsr_replay *r, const struct tsr_curve *c, size_t param)
{
	const uint64_t whole = tsr_curve_whole(c->kind, r, param);
	const double largest = tsr_replay_largest(r, param, c->kind->figure);

	if (!c->kind->percent)
		return largest;
	return whole ? 100 * largest / (double)whole : 0;
}

/* The tensor that is worst at any step; SIZE_MAX if all are 0. */
static size_t worst_tensor(const struct tsr_curve *c, size_t n)
{
	const size_t step = first_largest(c->worst, n);

	return step == SIZE_MAX ? SIZE_MAX : c->tensor[step];
}

static void put_tensors(struct tsr_text *html, const struct tsr_curves *c)
{
	const struct tsr_replay *r = c->replay;
	size_t worst[TSR_CURVES_MAX];

	tsr_text_puts(html, "<h2>Tensors</h2>\n<p>The largest value of each over the steps; the "
			    "largest of each column is bold.");
	if (r->nparams > TENSORS_SHOWN)
		tsr_text_printf(html, " The first %d of %zu.", TENSORS_SHOWN, r->nparams);
	tsr_text_puts(html, "</p>\n");
	open_table(html);
	tsr_text_puts(html, "<th>Tensor</th>");
	put_heads(html, c);
	for (unsigned i = 0; i < c->n; i++)
		worst[i] = worst_tensor(&c->curve[i], r->nsteps);
	for (size_t p = 0; p < r->nparams && p < TENSORS_SHOWN; p++) {
		tsr_text_puts(html, "<tr><td title=\"");
		tsr_html_put_text(html, r->params[p]);
		tsr_text_puts(html, "\">");
		tsr_html_put_text(html, r->params[p]);
		tsr_text_puts(html, "</td>");
		for (unsigned i = 0; i < c->n; i++)
			put_cell(html, &c->curve[i], largest_of(r, &c->curve[i], p), worst[i] == p);
		tsr_text_puts(html, "</tr>\n");
	}
	close_table(html);
}

static void put_warnings(struct tsr_text *html, const struct tsr_replay *r)
{
	if (!r->nwarnings)
		return;
	tsr_text_puts(html, "<h2>Learning rates that are too small</h2>\n<p>They cannot move the "
			    "largest weights of these tensors.</p>\n");
	open_table(html);
	tsr_text_puts(html, "<th>Tensor</th><th>from step</th><th>lr</th><th>largest weight</th>"
			    "</tr></thead>\n<tbody>\n");
	for (size_t i = 0; i < r->nwarnings && i < TENSORS_SHOWN; i++) {
		const struct tsr_numerics_warning *w = &r->warnings[i];

		tsr_text_puts(html, "<tr><td>");
		tsr_html_put_text(html, r->params[w->param]);
		tsr_text_printf(html, "</td><td>%" PRIu64 "</td><td>%.4g</td><td>%.4g</td></tr>\n",
				w->step, w->lr, w->largest);
	}
	close_table(html);
}

/* --- The page --------------------------------------------------------------------------------- */

static const char how_to_read[] =
	"<h2>How to read it</h2>\n<ul>\n"
	"<li>The same gradients were stepped twice: with the state in the form above, and in FP32. "
	"Figures compare the two. NMSE is the sum of (x \xe2\x88\x92 y)\xc2\xb2 over the sum of "
	"x\xc2\xb2, x being FP32's: its square root is the error as a share of the length.</li>\n"
	"<li>The <em>update error</em> is that of what a step adds to the weights, before they are "
	"stored. 1 is that of not stepping at all; at 0.01 the update is 10% of its length off. "
	"The noise of gradients is larger, but averages out; what a form of state does to an "
	"update comes back at every step.</li>\n"
	"<li>The <em>storing error of updates</em> is what storing the weights makes of that: 1 is "
	"that of weights that stay where they were. Below, it is rounding. <em>Stalled</em> are "
	"weights that the update moves in FP32 arithmetic, and that are stored as what they "
	"were.</li>\n"
	"<li>A group whose scale is stored as 0 loses its momentum or variance. Where a variance "
	"is stored as 0, the next update is divided by little more than its own gradient and eps, "
	"and "
	"explodes if the momentum survived.</li>\n"
	"<li>ULP count the FP32 numbers between two weights. Near 0 there are a great many: read "
	"the error of the weights beside it.</li>\n"
	"<li>Point at a panel, or move with the arrow keys, for the values of one step. A skipped "
	"step breaks the lines.</li>\n</ul>\n";

static void draw(const void *ctx, bool wide, struct tsr_text *svg)
{
	const struct tsr_curves_layout layout = { .id = wide ? "wide" : "narrow",
						  .width = wide ? 1040 : 366,
						  .columns = wide ? 2 : 1 };

	tsr_curves_put(ctx, &layout, svg);
}

static void put_page(struct tsr_text *html, const struct tsr_curves *c)
{
	const struct tsr_replay *r = c->replay;
	const bool drawn = r->compared && r->nsteps;
	struct tsr_text json = { 0 };

	tsr_page_open(html, "tersor replay");
	tsr_text_puts(html, "<h1>Replay</h1>\n");
	put_what(html, r);
	put_findings(html, r);
	put_warnings(html, r);
	if (drawn) {
		tsr_page_put_charts(html, draw, c);
		put_steps(html, c);
		put_tensors(html, c);
		tsr_text_puts(html, how_to_read);
	}
	if (drawn)
		put_json(&json, c);
	tsr_page_close(html, drawn ? &json : NULL);
	tsr_text_free(&json);
}

void tsr_replay_put_html(const struct tsr_replay *r, struct tsr_text *html)
{
	struct tsr_curves c;

	if (!tsr_curves_find(&c, r)) {
		html->failed = true;
		return;
	}
	put_page(html, &c);
	tsr_curves_free(&c);
}
