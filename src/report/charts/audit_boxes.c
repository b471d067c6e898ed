/* SPDX-License-Identifier: Apache-2.0 */
/* The boxes of an audit: per codec the quantiles of its NMSE over tensors, as in FlashOptim's figure 4. */
#include "report/charts/charts.h"

#define LAST (TSR_AUDIT_QUANTILES - 1)

/* Distances within a panel, in tenths of a pixel. */
enum {
	ROW = 220,
	HEAD = 420, /* above the rows */
	FOOT = 400, /* below them: the axis and a gap */
	LABEL = 1180, /* names of codecs */
	RIGHT = 200,
	EDGE = 280, /* between the plot and the places of zero and infinity */
	HALF = 60 /* of the height of a box */
};

/* Minimum and maximum are dots, 5 and 95 percent whiskers, 25 and 75 the box with the median inside. */
static void put_box(struct tsr_text *svg, const struct tsr_axis *axis, const double *q, int y)
{
	int x[TSR_AUDIT_QUANTILES];

	for (unsigned i = 0; i < TSR_AUDIT_QUANTILES; i++)
		x[i] = tsr_axis_at(axis, q[i]);
	tsr_chart_put_line(svg, "whisker", x[1], y, x[5], y);
	tsr_chart_put_line(svg, "whisker", x[1], y - HALF / 2, x[1], y + HALF / 2);
	tsr_chart_put_line(svg, "whisker", x[5], y - HALF / 2, x[5], y + HALF / 2);
	tsr_chart_put_rect(svg, "box", x[2], y - HALF, x[4] > x[2] ? x[4] - x[2] : 1, 2 * HALF);
	tsr_chart_put_line(svg, "median", x[3], y - HALF, x[3], y + HALF);
	tsr_chart_put_marker(svg, x[0], y, 0);
	tsr_text_puts(svg, "<g class=\"most\">");
	tsr_chart_put_marker(svg, x[LAST], y, 0);
	tsr_text_puts(svg, "</g>\n");
}

int tsr_audit_boxes_height(const struct tsr_audit *a, enum tsr_kind kind)
{
	int n = 0;

	for (unsigned i = 0; i < tsr_audit_list(a, kind)->n; i++)
		n += tsr_audit_columns(a, kind)[i].n > 0;
	return n ? HEAD + ROW * n + FOOT : 0;
}

static void put_row(const struct tsr_audit *a, const struct tsr_audit_column *c,
		    const struct tsr_axis *x, int y, int width, struct tsr_text *svg)
{
	tsr_text_puts(svg, "<g class=\"row\">\n");
	/* What is shown where the pointer rests: all quantiles, and who has the largest. */
	tsr_text_printf(svg, "<title>%s, %zu tensors:", c->coding->codec->name, c->n);
	for (unsigned k = 0; k < TSR_AUDIT_QUANTILES; k++) {
		tsr_text_printf(svg, "%s %u%% ", k ? "," : "", tsr_audit_percent(k));
		tsr_chart_put_error(c->quantile[TSR_AUDIT_NMSE][k], 2, svg);
	}
	tsr_text_puts(svg, "; largest: ");
	tsr_html_put_text(svg, a->tensors[c->worst].tensor->name);
	tsr_text_puts(svg, "</title>\n");
	tsr_chart_put_rect(svg, "field", 0, y - ROW / 2, width, ROW);
	tsr_chart_put_label(svg, "codec end", LABEL - 120, y + 40, c->coding->codec->name);
	put_box(svg, x, c->quantile[TSR_AUDIT_NMSE], y);
	tsr_text_puts(svg, "</g>\n");
}

void tsr_audit_boxes_put(const struct tsr_audit *a, enum tsr_kind kind, int top, int width,
			 struct tsr_text *svg)
{
	const struct tsr_audit_column *columns = tsr_audit_columns(a, kind);
	const unsigned n = tsr_audit_list(a, kind)->n;
	const int bottom = top + tsr_audit_boxes_height(a, kind) - FOOT;
	struct tsr_axis x = TSR_AXIS;
	struct tsr_chart_area area;
	int y = top + HEAD + ROW / 2;

	for (unsigned i = 0; i < n * TSR_AUDIT_QUANTILES; i++) {
		const struct tsr_audit_column *c = &columns[i / TSR_AUDIT_QUANTILES];

		if (c->n)
			tsr_axis_note(&x, c->quantile[TSR_AUDIT_NMSE][i % TSR_AUDIT_QUANTILES]);
	}
	tsr_axis_fit(&x, LABEL, width - RIGHT, EDGE);
	area = (struct tsr_chart_area){ x.from, x.to, top + HEAD, bottom };
	tsr_chart_open_panel(svg, tsr_kind_name(kind), "", &area);
	tsr_chart_open_label(svg, "title", 60, top + 270);
	tsr_text_printf(svg, "%s <tspan class=\"unit\">NMSE over tensors, log</tspan></text>\n",
			kind == TSR_KIND_MOMENTUM   ? "Momenta"
			: kind == TSR_KIND_VARIANCE ? "Variances"
						    : "Weights");
	tsr_chart_put_decades(svg, &x, top + HEAD, bottom, 420);
	for (unsigned i = 0; i < n; i++) {
		if (columns[i].n) {
			put_row(a, &columns[i], &x, y, width, svg);
			y += ROW;
		}
	}
	tsr_text_puts(svg, "</g>\n");
}
