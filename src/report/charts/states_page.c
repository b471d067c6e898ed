/* SPDX-License-Identifier: Apache-2.0 */
/* The page of replays in several states: findings, charts and tables, in one file. */
#include <inttypes.h>
#include <math.h>

#include "report/charts/page.h"
#include "report/charts/states_chart.h"
#include "report/replay_figures.h"
#include "report/replay_findings.h"
#include "report/replay_report.h"
#include "ckpt/checkpoint_model.h"
#include "replay/replay_result.h"

/* The most rows of the table of steps. */
#define STEPS_SHOWN 200

/* --- What was replayed ------------------------------------------------------------------------ */

static void put_what(struct tsr_text *html, const struct tsr_replay *r)
{
	tsr_text_puts(html, "<p>");
	tsr_html_put_text(html, r->source->path);
	tsr_text_printf(html, ", stepped by %s with the gradients of ",
			tsr_optimizer_name(r->optimizer));
	tsr_html_put_text(html, r->recording);
	if (r->nsteps)
		tsr_text_printf(html, ", steps %" PRIu64 " to %" PRIu64, r->steps[0].step,
				r->steps[r->nsteps - 1].step);
	tsr_text_puts(html, ".</p>\n");
}

/* The gravest finding of each state. */
static void put_findings(struct tsr_text *html, const struct tsr_replay_states *s)
{
	struct tsr_findings f;

	tsr_text_puts(html, "<ul class=\"findings\">\n");
	for (unsigned i = 0; i < s->n; i++) {
		const struct tsr_finding *item = tsr_gravest_finding(s->replay[i], &f);

		if (!item)
			continue;
		tsr_text_printf(html, "<li class=\"%s\"><b>%s</b> ",
				tsr_finding_level_name(item->level), s->form[i].name);
		tsr_html_put_text(html, item->text);
		tsr_text_puts(html, "</li>\n");
	}
	tsr_text_puts(html, "</ul>\n");
}

/* --- Tables ----------------------------------------------------------------------------------- */

static void put_cell(struct tsr_text *html, double value)
{
	char cell[24];

	tsr_replay_format(cell, TSR_FIGURE_UPDATE_NMSE, value, 0);
	tsr_text_printf(html, "<td>%s</td>", cell);
}

static void put_codecs(struct tsr_text *html, const struct tsr_replay *r)
{
	tsr_text_puts(html, "<td>");
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		if (r->coding[p].codec)
			tsr_text_printf(html, "%s%s", p ? ", " : "", r->coding[p].codec->name);
	}
	tsr_text_puts(html, "</td>");
}

static void put_state(struct tsr_text *html, const char *name, const struct tsr_replay *r)
{
	static const enum tsr_figure_name shown[] = { TSR_FIGURE_MOMENTUM_NMSE,
						      TSR_FIGURE_VARIANCE_NMSE,
						      TSR_FIGURE_WEIGHT_NMSE,
						      TSR_FIGURE_UPDATE_NMSE };
	const struct tsr_replay_worst worst = tsr_replay_worst(r, TSR_FIGURE_UPDATE_NMSE);
	const size_t last = tsr_states_last(r);

	tsr_text_printf(html, "<tr><td>%s</td>", name);
	put_codecs(html, r);
	tsr_text_printf(html, "<td>%.3f</td>", tsr_state_bytes(r));
	for (size_t i = 0; i < sizeof(shown) / sizeof(*shown); i++)
		put_cell(html, r->steps[last].total.value[shown[i]]);
	put_cell(html, worst.any ? worst.value : NAN);
	tsr_text_puts(html, "<td>");
	if (worst.any) {
		tsr_html_put_text(html, r->params[worst.param]);
		tsr_text_printf(html, ", step %" PRIu64, r->steps[worst.step].step);
	}
	tsr_text_puts(html, "</td></tr>\n");
}

static void put_states(struct tsr_text *html, const struct tsr_replay_states *s)
{
	tsr_text_puts(html,
		      "<h2>States</h2>\n<p>Errors of all tensors after the last step, and the "
		      "largest of any tensor at any step.</p>\n<div class=\"scroll\">"
		      "<table class=\"figures\">\n<thead><tr><th>State</th><th>codecs</th>"
		      "<th>bytes per parameter</th><th>momentum</th><th>variance</th>"
		      "<th>weight</th><th>update</th><th>worst update</th><th>of</th></tr>"
		      "</thead>\n<tbody>\n");
	for (unsigned i = 0; i < s->n; i++)
		put_state(html, s->form[i].name, s->replay[i]);
	tsr_text_puts(html, "</tbody></table></div>\n");
}

static void put_steps(struct tsr_text *html, const struct tsr_replay_states *s)
{
	const struct tsr_replay *first = s->replay[0];

	tsr_text_puts(html, "<h2>Update error over steps</h2>\n<div class=\"scroll\">"
			    "<table class=\"figures\">\n<thead><tr><th>Step</th>");
	for (unsigned i = 0; i < s->n; i++)
		tsr_text_printf(html, "<th>%s</th>", s->form[i].name);
	tsr_text_puts(html, "</tr></thead>\n<tbody>\n");
	for (size_t step = 0; step < first->nsteps; step++) {
		if (!tsr_replay_has_figures(first, step) ||
		    !tsr_replay_in_sample(first, step, STEPS_SHOWN))
			continue;
		tsr_text_printf(html, "<tr><td>%" PRIu64 "</td>", first->steps[step].step);
		for (unsigned i = 0; i < s->n; i++)
			put_cell(html,
				 s->replay[i]->steps[step].total.value[TSR_FIGURE_UPDATE_NMSE]);
		tsr_text_puts(html, "</tr>\n");
	}
	tsr_text_puts(html, "</tbody></table></div>\n");
}

/* --- The page --------------------------------------------------------------------------------- */

static const char how_to_read[] =
	"<h2>How to read it</h2>\n<ul>\n"
	"<li>Each state was stepped with the same gradients, and so was FP32 from the same values. "
	"Errors are NMSE against that: the sum of (x \xe2\x88\x92 y)\xc2\xb2 over the sum of "
	"x\xc2\xb2, x being FP32's. The square root is the error as a share of the length.</li>\n"
	"<li>The <em>update error</em> is that of what a step adds to the weights, before they are "
	"stored: 1 is that of not stepping at all, at 0.01 the update is 10% of its length off."
	"</li>\n</ul>\n";

static void draw(const void *ctx, bool wide, struct tsr_text *svg)
{
	tsr_states_curves_put(ctx, wide ? "wide" : "narrow", wide ? 1040 : 366, wide ? 2 : 1, svg);
}

void tsr_states_put_html(const struct tsr_replay_states *s, struct tsr_text *html)
{
	const struct tsr_replay *first = s->replay[0];
	struct tsr_states_curves c;

	if (!tsr_states_curves_find(&c, s)) {
		html->failed = true;
		return;
	}
	tsr_page_open(html, "tersor replay");
	tsr_text_printf(html, "<h1>Replay in %u states</h1>\n", s->n);
	put_what(html, first);
	if (first->compared && tsr_states_last(first) != SIZE_MAX) {
		put_findings(html, s);
		tsr_page_put_charts(html, draw, &c);
		put_states(html, s);
		put_steps(html, s);
		tsr_text_puts(html, how_to_read);
	}
	tsr_page_close(html, NULL);
	tsr_states_curves_free(&c);
}
