/* SPDX-License-Identifier: Apache-2.0 */
/* The page of an audit: what to use, charts, their values and the worst tensors, in one file. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "charts/audit/audit_chart.h"
#include "charts/page.h"
#include "report/audit/audit_table.h"
#include "report/format.h"
#include "tersor/version.h"

TSR_EMBED(tsr_audit_page_css, "src/charts/audit/audit_page.css");

#define LAST (TSR_AUDIT_QUANTILES - 1)

/* The most rows of tables. */
#define PAIRS_SHOWN 200
#define TENSORS_SHOWN 50

/* --- Tables ------------------------------------------------------------------------------------- */

static void open_table(struct tsr_text *html)
{
	tsr_text_puts(html, "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>");
}

static void open_rows(struct tsr_text *html)
{
	tsr_text_puts(html, "</tr></thead>\n<tbody>\n");
}

static void close_table(struct tsr_text *html)
{
	tsr_text_puts(html, "</tbody></table></div>\n");
}

static void put_error_cell(double value, struct tsr_text *html)
{
	tsr_text_puts(html, "<td>");
	if (isnan(value))
		tsr_text_puts(html, "\xe2\x80\x93");
	else
		tsr_audit_put_error(value, 2, html);
	tsr_text_puts(html, "</td>");
}

static void put_quantile_heads(struct tsr_text *html)
{
	for (unsigned i = 0; i < TSR_AUDIT_QUANTILES; i++)
		tsr_text_printf(html, "<th>%u%%</th>", tsr_audit_percent(i));
}

static void put_pairs(struct tsr_text *html, const struct tsr_audit_view *v)
{
	const struct tsr_audit *a = v->audit;

	if (!a->npairs || !v->ncells)
		return;
	tsr_text_printf(
		html,
		"<h2>Pairs of codecs</h2>\n<p>NMSE of the updates m / (\xe2\x88\x9a"
		"v + %.4g) of "
		"%zu momenta and variances, the smallest worst error first%s. The largest |u| "
		"was %.3g.</p>\n",
		(double)a->eps, a->npairs, v->ncells > PAIRS_SHOWN ? "; the first of them" : "",
		(double)v->cells[0].max_before);
	open_table(html);
	tsr_text_puts(html, "<th>Momentum + variance</th><th>bytes</th>");
	put_quantile_heads(html);
	tsr_text_puts(html, "<th>max |u|</th><th>v lost</th><th>raw</th>");
	open_rows(html);
	for (size_t i = 0; i < v->ncells && i < PAIRS_SHOWN; i++) {
		const struct tsr_audit_cell *c = &v->cells[i];

		tsr_text_printf(html, "<tr><td>%s + %s</td><td>%.3f</td>",
				a->momenta.codings[c->m].codec->name,
				a->variances.codings[c->v].codec->name, c->bytes);
		for (unsigned q = 0; q < TSR_AUDIT_QUANTILES; q++)
			put_error_cell(c->nmse[q], html);
		tsr_text_printf(html, "<td>%.3g</td>", (double)c->max_after);
		tsr_html_put_count(html, "td", c->exposed);
		tsr_html_put_count(html, "td", c->nraw);
		tsr_text_puts(html, "</tr>\n");
	}
	close_table(html);
}

static void put_codecs(struct tsr_text *html, const struct tsr_audit_panel *p)
{
	if (!p->n)
		return;
	tsr_text_printf(html, "<h2>%s</h2>\n<p>NMSE over %zu tensors.</p>\n", p->title,
			p->columns[0].n);
	open_table(html);
	tsr_text_puts(html, "<th>Codec</th><th>bytes</th>");
	put_quantile_heads(html);
	tsr_text_puts(html, "<th>zeroed</th><th>stuck</th><th>raw</th>");
	open_rows(html);
	for (unsigned i = 0; i < p->n; i++) {
		const struct tsr_audit_column *c = &p->columns[i];

		tsr_text_printf(html, "<tr><td>%s</td><td>%.3f</td>", c->coding->codec->name,
				c->bytes);
		for (unsigned q = 0; q < TSR_AUDIT_QUANTILES; q++)
			put_error_cell(c->quantile[TSR_AUDIT_NMSE][q], html);
		tsr_html_put_count(html, "td", c->zeroed);
		tsr_text_printf(html, "<td>%s%s</td>", tsr_format_percent(c->stuck, c->groups).text,
				c->groups ? "%" : "");
		tsr_html_put_count(html, "td", c->nraw);
		tsr_text_puts(html, "</tr>\n");
	}
	close_table(html);
}

/* The numbers that the curves have, and their values. */
static void put_checkpoints(struct tsr_text *html, const struct tsr_audit_view *v)
{
	const unsigned n = v->series.n;

	if (!n)
		return;
	tsr_text_puts(html, "<h2>Checkpoints</h2>\n<p>Worst NMSE of updates. What follows, and the "
			    "charts above but the first, are of the last one.</p>\n");
	open_table(html);
	tsr_text_puts(html, "<th>Checkpoint</th>");
	for (unsigned i = 0; i < n; i++)
		tsr_text_printf(html, "<th>%s + %s</th>",
				v->audit->momenta.codings[v->series.cell[i].m].codec->name,
				v->audit->variances.codings[v->series.cell[i].v].codec->name);
	open_rows(html);
	for (size_t i = 0; i < v->naudits; i++) {
		tsr_text_printf(html, "<tr><td>%zu ", i + 1);
		tsr_html_put_text(html, v->audits[i]->name);
		tsr_text_puts(html, "</td>");
		for (unsigned k = 0; k < n; k++)
			put_error_cell(v->nmse[i * n + k], html);
		tsr_text_puts(html, "</tr>\n");
	}
	close_table(html);
}

/* --- The worst tensors -------------------------------------------------------------------------- */

/* A pair of tensors and its error. */
struct ranked {
	size_t pair;
	double nmse;
};

static int compare(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return x->nmse != y->nmse ? (x->nmse < y->nmse) - (x->nmse > y->nmse)
				  : (x->pair > y->pair) - (x->pair < y->pair);
}

static void put_worst_row(struct tsr_text *html, const struct tsr_audit_view *v, size_t pair)
{
	const struct tsr_audit *a = v->audit;
	const struct tsr_audit_pair *p = &a->pairs[pair];
	const struct tsr_audit_update *u = tsr_audit_update(a, pair, v->best->m, v->best->v);
	const struct tsr_audit_tensor *m = &a->tensors[p->momentum],
				      *var = &a->tensors[p->variance];
	const char *name = m->tensor->weight ? m->tensor->weight : m->tensor->name;

	tsr_text_puts(html, "<tr><td title=\"");
	tsr_html_put_text(html, name);
	tsr_text_puts(html, "\">");
	tsr_html_put_text(html, name);
	tsr_text_puts(html, "</td>");
	tsr_html_put_count(html, "td", m->tensor->numel);
	put_error_cell(u->nmse, html);
	put_error_cell(m->trials[v->best->m].nmse, html);
	put_error_cell(var->trials[v->best->v].nmse, html);
	tsr_text_printf(html, "<td>%.3g</td><td>%.3g</td></tr>\n", (double)p->max_before,
			(double)u->max_after);
}

static void put_worst(struct tsr_text *html, const struct tsr_audit_view *v)
{
	const struct tsr_audit *a = v->audit;
	struct ranked *ranked;
	size_t n = 0;

	if (!v->best)
		return;
	ranked = calloc(a->npairs + 1, sizeof(*ranked));
	html->failed = html->failed || !ranked;
	for (size_t i = 0; ranked && i < a->npairs; i++) {
		const struct tsr_audit_update *u = tsr_audit_update(a, i, v->best->m, v->best->v);

		if (u->measured)
			ranked[n++] = (struct ranked){ i, u->nmse };
	}
	if (ranked)
		qsort(ranked, n, sizeof(*ranked), compare);
	tsr_text_printf(
		html,
		"<h2>Worst tensors</h2>\n<p>With <code>%s</code> and <code>%s</code>%s.</p>\n",
		a->momenta.codings[v->best->m].codec->name,
		a->variances.codings[v->best->v].codec->name,
		n > TENSORS_SHOWN ? ", those with the largest update error" : "");
	open_table(html);
	tsr_text_puts(html, "<th>Parameter</th><th>elements</th><th>update</th><th>momentum</th>"
			    "<th>variance</th><th>max |u|</th><th>after</th>");
	open_rows(html);
	for (size_t i = 0; i < n && i < TENSORS_SHOWN; i++)
		put_worst_row(html, v, ranked[i].pair);
	close_table(html);
	free(ranked);
}

static void put_faults(struct tsr_text *html, const struct tsr_audit *a)
{
	char text[120];
	size_t n = 0;

	for (size_t i = 0; i < a->ntensors; i++) {
		const char *fault = tsr_audit_fault_text(&a->tensors[i], text, sizeof(text));

		if (!fault)
			continue;
		tsr_text_puts(html, n++ ? "<li>" : "<h2>Tensors without figures</h2>\n<ul>\n<li>");
		tsr_html_put_text(html, a->tensors[i].tensor->name);
		tsr_text_puts(html, ": ");
		tsr_html_put_text(html, fault);
		tsr_text_puts(html, "</li>\n");
	}
	if (n)
		tsr_text_puts(html, "</ul>\n");
}

/* --- The page ----------------------------------------------------------------------------------- */

static const char how_to_read[] =
	"<h2>How to read it</h2>\n<ul>\n"
	"<li>NMSE is the sum of (x \xe2\x88\x92 y)\xc2\xb2 over the sum of x\xc2\xb2, x before and "
	"y after "
	"the codec: its square root is the error as a share of the length of the tensor.</li>\n"
	"<li>Boxes are tensors: from 25 to 75 percent of them with the median inside, whiskers "
	"from 5 to "
	"95 percent, and dots for the smallest and the largest error. Each quantile is the error "
	"of "
	"one tensor.</li>\n"
	"<li>The <em>update</em> is what an optimizer of Adam\xe2\x80\x99s kind makes of both "
	"moments. "
	"It can be far off though both are near: a variance that comes back too small divides by "
	"little. The map shows the worst tensor of each pair of codecs; a star marks pairs that "
	"cannot "
	"hold all tensors, and the frame is the verdict.</li>\n"
	"<li><em>v lost</em> are variances that come back 0 under a momentum that does not. "
	"<em>Stuck</em> are groups that one step of decay does not change: a state that is stored "
	"so "
	"after every step never decays. <em>Raw</em> are tensors that the codec cannot hold.</li>\n"
	"<li>Rest the pointer on a box or a field for its figures.</li>\n</ul>\n";

static void draw(const void *ctx, bool wide, struct tsr_text *svg)
{
	tsr_audit_chart_put(ctx, wide ? "wide" : "narrow", wide ? 1040 : 366, svg);
}

static void put_head(struct tsr_text *html, const struct tsr_audit_view *v)
{
	struct tsr_text verdict = { 0 };

	tsr_audit_put_verdict(v->audit, v->cells, v->ncells, &verdict);
	tsr_text_puts(html, "<h1>Audit</h1>\n");
	if (verdict.nbytes) {
		tsr_text_puts(html, "<p class=\"verdict\">");
		tsr_html_put_text(html, verdict.bytes);
		tsr_text_puts(html, "</p>\n");
	}
	html->failed = html->failed || verdict.failed;
	tsr_text_free(&verdict);
	tsr_text_puts(html, "<p class=\"soft\">");
	tsr_html_put_text(html, v->audit->name);
	tsr_text_printf(html, ", %zu tensors; made by tersor " TSR_VERSION "</p>\n",
			v->audit->ntensors);
}

void tsr_audit_put_html(struct tsr_audit *const *audits, size_t n, struct tsr_text *html)
{
	struct tsr_audit_view v;

	if (!tsr_audit_view_of(audits, n, &v)) {
		tsr_audit_view_free(&v);
		html->failed = true;
		return;
	}
	tsr_page_open(html, "tersor audit", tsr_audit_page_css);
	put_head(html, &v);
	put_faults(html, v.audit);
	tsr_page_put_charts(html, draw, &v);
	put_checkpoints(html, &v);
	put_worst(html, &v);
	put_pairs(html, &v);
	for (unsigned i = 0; i < TSR_AUDIT_PANELS; i++)
		put_codecs(html, &v.panel[i]);
	tsr_text_puts(html, how_to_read);
	tsr_text_puts(html, "</main>\n");
	tsr_page_close(html);
	tsr_audit_view_free(&v);
}
