/* SPDX-License-Identifier: Apache-2.0 */
/* The page of 8-bit floats by granularity: what to use, the chart, its values and the tensors. */
#include "charts/audit/audit_chart.h"
#include "charts/audit/granularity_chart.h"
#include "charts/page.h"
#include "report/format.h"
#include "tersor/version.h"

/* The most rows of the table of tensors. */
#define TENSORS_SHOWN 1000

static void put_cell(double nmse, struct tsr_text *html)
{
	tsr_text_puts(html, "<td>");
	tsr_audit_put_error(nmse, 2, html);
	tsr_text_puts(html, "</td>");
}

static void put_over_tensors(struct tsr_text *html, const struct tsr_granularity_figures *f)
{
	tsr_text_printf(html, "<h2>Over tensors</h2>\n<p>NMSE of %zu tensors.</p>\n", f->ntensors);
	tsr_text_puts(html,
		      "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr><th>One scale "
		      "per</th><th>bytes per element</th>");
	for (int i = 0; i < TSR_FP8_COUNT; i++)
		tsr_text_printf(html, "<th>%s median</th><th>largest</th><th>zeroed</th>",
				tsr_fp8_title((enum tsr_fp8)i));
	tsr_text_puts(html, "</tr></thead>\n<tbody>\n");
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++) {
		tsr_text_printf(html, "<tr><td>%s</td><td>%.4f</td>", tsr_granularity_get(i)->name,
				tsr_granularity_cost(f, TSR_FP8_E4M3, i));
		for (int format = 0; format < TSR_FP8_COUNT; format++) {
			const struct tsr_granularity_row *row = &f->row[format][i];

			put_cell(row->median, html);
			put_cell(row->worst, html);
			tsr_html_put_count(html, "td", row->zeroed);
		}
		tsr_text_puts(html, "</tr>\n");
	}
	tsr_text_puts(html, "</tbody></table></div>\n");
}

static void put_tensor(struct tsr_text *html, const struct tsr_granularity_tensor *t)
{
	tsr_text_puts(html, "<tr><td title=\"");
	tsr_html_put_text(html, t->tensor->name);
	tsr_text_puts(html, "\">");
	tsr_html_put_text(html, t->tensor->name);
	tsr_text_printf(html, "</td><td>%.3g</td>", t->max);
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++)
		put_cell(t->error[TSR_FP8_E4M3][i].nmse, html);
	tsr_text_puts(html, "</tr>\n");
}

static void put_tensors(struct tsr_text *html, const struct tsr_granularities *g,
			const struct tsr_granularity_figures *f)
{
	size_t n = 0;

	tsr_text_puts(html, "<h2>Tensors</h2>\n<p>NMSE in E4M3 with one scale per ...");
	if (f->ntensors > TENSORS_SHOWN)
		tsr_text_printf(html, " The first %d of %zu.", TENSORS_SHOWN, f->ntensors);
	tsr_text_puts(html,
		      "</p>\n<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr><th>Tensor"
		      "</th><th>max |x|</th>");
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++)
		tsr_text_printf(html, "<th>%s</th>", tsr_granularity_get(i)->name);
	tsr_text_puts(html, "</tr></thead>\n<tbody>\n");
	for (size_t i = 0; i < tsr_granularities_ntensors(g) && n < TENSORS_SHOWN; i++) {
		const struct tsr_granularity_tensor *t = tsr_granularities_tensor(g, i);

		if (!tsr_granularity_counts(t))
			continue;
		put_tensor(html, t);
		n++;
	}
	tsr_text_puts(html, "</tbody></table></div>\n");
}

static void draw(const void *ctx, bool wide, struct tsr_text *svg)
{
	tsr_granularity_chart_put(ctx, wide ? "wide" : "narrow", wide ? 1040 : 366, wide ? 2 : 1,
				  svg);
}

void tsr_granularity_put_html(const struct tsr_granularities *g,
			      const struct tsr_granularity_figures *f, struct tsr_text *html)
{
	tsr_page_open(html, "tersor audit", tsr_audit_page_css);
	tsr_text_puts(html, "<h1>8-bit floats by granularity</h1>\n");
	if (f->ntensors) {
		tsr_text_puts(html, "<p class=\"verdict\">");
		tsr_granularity_put_verdict(f, html);
		tsr_text_puts(html, "</p>\n");
	}
	tsr_text_puts(html, "<p class=\"soft\">");
	tsr_html_put_text(html, tsr_checkpoint_path(tsr_granularities_checkpoint(g)));
	tsr_text_printf(html,
			", %zu tensors with figures, %zu of zeros, %zu with values that are not "
			"finite, %zu of other types; made by tersor " TSR_VERSION "</p>\n",
			f->ntensors, f->nzero, f->nnonfinite, f->nother);
	tsr_page_put_charts(html, draw, f);
	put_over_tensors(html, f);
	put_tensors(html, g, f);
	tsr_text_puts(html, "</main>\n");
	tsr_page_close(html);
}
