/* SPDX-License-Identifier: Apache-2.0 */
/* The heat map of an audit: the worst update error of each pair of codecs for momenta and variances. */

#include "report/charts/charts.h"

#define LAST (TSR_AUDIT_QUANTILES - 1)

/* Distances, in tenths of a pixel. */
enum {
	LABEL = 1060,
	RIGHT = 120,
	ROW = 280,
	TITLE = 420,
	NAMES = 840, /* names of variance codecs, slanted */
	KEY = 560, /* the legend and a gap below */
	CELL_MAX = 720,
	DIGITS_MIN = 460, /* cells that are wide enough for two digits */
	SMALL = 300, /* less: smaller letters */
	TEXT_MIN = 200 /* less: no text */
};

/* The decade of the first colour. */
#define DECADE_FIRST (-5)

static void put_cell(struct tsr_text *svg, const struct tsr_audit *a,
		     const struct tsr_audit_cell *c, bool best, int top, int each)
{
	const int x = LABEL + each * (int)c->v, y = top + ROW * (int)c->m;

	tsr_text_printf(svg, "<g class=\"cell q%u%s\">\n",
			c->n ? tsr_chart_class(c->nmse[LAST], DECADE_FIRST) : TSR_CHART_CLASSES,
			best ? " best" : "");
	/* What is shown where the pointer rests. */
	tsr_text_printf(svg, "<title>%s + %s, %.4g bytes for both",
			a->momenta.codings[c->m].codec->name,
			a->variances.codings[c->v].codec->name, c->bytes);
	if (c->n) {
		tsr_text_printf(svg, "; update NMSE of %zu pairs: median ", c->n);
		tsr_chart_put_error(c->nmse[TSR_AUDIT_MEDIAN], 2, svg);
		tsr_text_puts(svg, ", worst ");
		tsr_chart_put_error(c->nmse[LAST], 2, svg);
		tsr_text_printf(svg, "; largest |u| %.3g, was %.3g; worst: ", (double)c->max_after,
				(double)c->max_before);
		tsr_html_put_text(svg, a->tensors[a->pairs[c->worst].variance].tensor->name);
	}
	if (c->nraw)
		tsr_text_printf(svg, "; %zu pairs that it cannot hold", c->nraw);
	tsr_text_puts(svg, "</title>\n");
	tsr_chart_put_rect(svg, NULL, x + 10, y + 10, each - 20, ROW - 20);
	if (each >= TEXT_MIN && c->n) {
		tsr_chart_open_label(svg, each < SMALL ? "mid small" : "mid", x + each / 2,
				     y + ROW / 2 + 40);
		tsr_chart_put_error(c->nmse[LAST], each >= DIGITS_MIN, svg);
		tsr_text_printf(svg, "%s</text>\n", c->nraw ? "*" : "");
	}
	tsr_text_puts(svg, "</g>\n");
}

int tsr_audit_heat_height(const struct tsr_audit *a)
{
	if (!a->npairs || !a->momenta.n || !a->variances.n)
		return 0;
	return TITLE + NAMES + ROW * (int)a->momenta.n + KEY;
}

void tsr_audit_heat_put(const struct tsr_audit *a, int top, int width, struct tsr_text *svg)
{
	const struct tsr_audit_cell *best = tsr_audit_best_pair(a);
	const int room = (width - LABEL - RIGHT) / (int)a->variances.n;
	const int each = room < CELL_MAX ? room : CELL_MAX, first = top + TITLE + NAMES;
	const int bottom = first + ROW * (int)a->momenta.n;
	const struct tsr_chart_area area = { LABEL, LABEL + each * (int)a->variances.n, first,
					     bottom };
	size_t n;
	const struct tsr_audit_cell *cells = tsr_audit_cells(a, &n);

	tsr_chart_open_panel(svg, "updates", "", &area);
	tsr_chart_put_label(svg, "title", 60, top + 270, "Updates");
	tsr_chart_put_label(svg, "tick", 60, top + 430,
			    "worst NMSE; rows: momentum codec, columns: variance codec");
	for (unsigned i = 0; i < a->momenta.n; i++)
		tsr_chart_put_label(svg, "codec end", LABEL - 60,
				    first + ROW * (int)i + ROW / 2 + 40,
				    a->momenta.codings[i].codec->name);
	for (unsigned i = 0; i < a->variances.n; i++)
		tsr_text_printf(svg,
				"<text class=\"codec\" transform=\"translate(%d %d) rotate(%d)\">"
				"%s</text>\n",
				(LABEL + each * (int)i + each / 2 + 40) / 10, (first - 60) / 10,
				each < DIGITS_MIN ? -90 : -50, a->variances.codings[i].codec->name);
	for (size_t i = 0; i < n; i++) {
		if (&cells[i] != best)
			put_cell(svg, a, &cells[i], false, first, each);
	}
	if (best)
		put_cell(svg, a, best, true, first, each);
	tsr_chart_put_classes(svg, LABEL, bottom + 160, DECADE_FIRST);
	tsr_text_puts(svg, "</g>\n");
}
