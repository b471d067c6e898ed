/* SPDX-License-Identifier: Apache-2.0 */
/* The curves of audits of several checkpoints: the worst update error of some pairs of codecs. */
#include <math.h>

#include "report/charts/audit_chart.h"
#include "report/charts/chart.h"

/* Distances, in tenths of a pixel. */
enum {
	LEFT = 640,
	RIGHT = 200,
	TITLE = 460,
	PLOT = 1700,
	KEY = 200, /* a line of the legend */
	FOOT = 640, /* the axis and a gap */
	EDGE = 150 /* between the plot and the places of zero and infinity */
};

struct plot {
	struct tsr_chart_area area;
	struct tsr_chart_scale x, y;
	int zero, infinity; /* where these are drawn */
	bool any_zero, any_infinite;
};

static double nmse_of(const struct tsr_audit_view *v, size_t audit, unsigned pair)
{
	return v->nmse[audit * v->series.n + pair];
}

static struct plot plan(const struct tsr_audit_view *v, int top, int width)
{
	struct plot p = { .area = { LEFT, width - RIGHT, top, top + PLOT } };

	p.x = (struct tsr_chart_scale){ p.area.left, p.area.right, 0, (double)v->naudits - 1,
					false };
	p.y = (struct tsr_chart_scale){ p.area.bottom, p.area.top, INFINITY, -INFINITY, true };
	for (size_t i = 0; i < v->naudits * v->series.n; i++) {
		const double value = v->nmse[i];

		p.any_zero = p.any_zero || value == 0;
		p.any_infinite = p.any_infinite || isinf(value);
		if (!(value > 0) || isinf(value))
			continue;
		p.y.low = fmin(p.y.low, floor(tsr_chart_log10(value) + 1e-9));
		p.y.high = fmax(p.y.high, ceil(tsr_chart_log10(value) - 1e-9));
	}
	if (!(p.y.low <= p.y.high))
		p.y.low = p.y.high = 0;
	p.y.high += p.y.high <= p.y.low;
	p.zero = p.y.from;
	p.infinity = p.y.to;
	p.y.from -= p.any_zero ? EDGE : 0;
	p.y.to += p.any_infinite ? EDGE : 0;
	return p;
}

static int y_of(const struct plot *p, double value)
{
	if (isinf(value))
		return p->infinity;
	return value > 0 ? tsr_chart_at(&p->y, value) : p->zero;
}

static void put_axes(struct tsr_text *svg, const struct tsr_audit_view *v, const struct plot *p)
{
	const int low = (int)p->y.low, high = (int)p->y.high, y = p->area.bottom;
	const size_t room = (size_t)(p->area.right - p->area.left) / 400;
	const size_t every = 1 + (v->naudits - 1) / (room > 2 ? room : 2);

	for (int d = low; d <= high; d++) {
		if ((high - d) % (1 + (high - low) / 7))
			continue;
		tsr_chart_open_y_tick(svg, &p->area, tsr_chart_tick(&p->y, d));
		tsr_chart_close_power(svg, 10, d);
	}
	if (p->any_zero)
		tsr_chart_put_y_tick(svg, &p->area, p->zero, "0");
	if (p->any_infinite)
		tsr_chart_put_y_tick(svg, &p->area, p->infinity, "\xe2\x88\x9e");
	tsr_chart_put_line(svg, "axis", p->area.left, y, p->area.right, y);
	for (size_t i = 0; i < v->naudits; i += every) {
		const int x = tsr_chart_at(&p->x, (double)i);

		tsr_chart_put_line(svg, "axis", x, y, x, y + 40);
		tsr_chart_open_label(svg, "tick mid", x, y + 160);
		tsr_text_printf(svg, "%zu</text>\n", i + 1);
	}
}

/* A checkpoint in which the pair was not tried breaks the line. */
static void put_curve(struct tsr_text *svg, const struct tsr_audit_view *v, const struct plot *p,
		      unsigned pair)
{
	bool pen = false;

	tsr_text_puts(svg, "<path d=\"");
	for (size_t i = 0; i < v->naudits; i++) {
		const double value = nmse_of(v, i, pair);

		if (!isnan(value))
			tsr_chart_put_point(svg, pen, tsr_chart_at(&p->x, (double)i),
					    y_of(p, value));
		pen = !isnan(value);
	}
	tsr_text_puts(svg, "\"/>\n");
	for (size_t i = 0; i < v->naudits; i++) {
		if (!isnan(nmse_of(v, i, pair)))
			tsr_chart_put_marker(svg, tsr_chart_at(&p->x, (double)i),
					     y_of(p, nmse_of(v, i, pair)), pair);
	}
}

int tsr_audit_curves_height(const struct tsr_audit_view *v)
{
	return v->series.n ? TITLE + KEY * (int)v->series.n + PLOT + FOOT : 0;
}

void tsr_audit_curves_put(const struct tsr_audit_view *v, int top, int width, struct tsr_text *svg)
{
	const int keys = top + TITLE;
	const struct plot p = plan(v, keys + KEY * (int)v->series.n, width);

	tsr_chart_open_panel(svg, "checkpoints", "", &p.area);
	tsr_chart_open_label(svg, "title", 60, top + 270);
	tsr_text_puts(svg, "Updates over checkpoints<tspan class=\"unit\"> worst NMSE, log</tspan>"
			   "</text>\n");
	put_axes(svg, v, &p);
	for (unsigned i = 0; i < v->series.n; i++) {
		const struct tsr_audit_cell *c = &v->series.cell[i];

		tsr_text_printf(svg, "<g class=\"curve c%u\">", i);
		tsr_chart_put_sample(svg, LEFT, keys + KEY * (int)i, i, "", "");
		tsr_chart_open_label(svg, "key", LEFT + 420, keys + KEY * (int)i + 40);
		tsr_text_printf(svg, "%s + %s</text>\n",
				v->audit->momenta.codings[c->m].codec->name,
				v->audit->variances.codings[c->v].codec->name);
		tsr_text_printf(svg, "<g class=\"curve c%u\">\n", i);
		put_curve(svg, v, &p, i);
		tsr_text_puts(svg, "</g>\n");
	}
	tsr_text_puts(svg, "</g>\n");
}
