/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of 8-bit floats by granularity: a panel per format, a place per granularity. */
#include "report/charts/granularity_chart.h"

#include <math.h>

#include "report/charts/audit_chart.h"
#include "report/charts/chart.h"
#include "report/granularity_report.h"

/* Distances within a panel, in tenths of a pixel. */
enum {
	LEFT = 560,
	RIGHT = 260,
	HEAD = 620, /* title and legend */
	PLOT = 1700,
	FOOT = 560 /* names, and a gap */
};

enum { MEDIAN, LARGEST, LINES };

struct plot {
	struct tsr_chart_area area;
	struct tsr_chart_scale x, y;
};

static double value_of(const struct tsr_granularity_figures *f, enum tsr_fp8 format, unsigned i,
		       int line)
{
	const struct tsr_granularity_row *row = &f->row[format][i];

	return line == MEDIAN ? row->median : row->worst;
}

/* Both panels have the same decades. */
static void set_decades(const struct tsr_granularity_figures *f, struct tsr_chart_scale *y)
{
	y->low = INFINITY;
	y->high = -INFINITY;
	for (int i = 0; i < TSR_FP8_COUNT * TSR_GRANULARITY_COUNT * LINES; i++) {
		const double value = value_of(f, (enum tsr_fp8)(i / LINES / TSR_GRANULARITY_COUNT),
					      (unsigned)i / LINES % TSR_GRANULARITY_COUNT,
					      i % LINES);

		if (!(value > 0))
			continue;
		y->low = fmin(y->low, floor(tsr_chart_log10(value) + 1e-9));
		y->high = fmax(y->high, ceil(tsr_chart_log10(value) - 1e-9));
	}
	if (!(y->low <= y->high))
		y->low = y->high = 0;
	y->high += y->high <= y->low;
}

static struct plot plan(const struct tsr_granularity_figures *f, int left, int top, int width)
{
	struct plot p = { .area = { left + LEFT, left + width - RIGHT, top + HEAD,
				    top + HEAD + PLOT } };

	p.x = (struct tsr_chart_scale){ p.area.left, p.area.right, 0, TSR_GRANULARITY_COUNT - 1,
					false };
	p.y = (struct tsr_chart_scale){ .from = p.area.bottom, .to = p.area.top, .log = true };
	set_decades(f, &p.y);
	return p;
}

static void put_axes(struct tsr_text *svg, const struct plot *p)
{
	const int low = (int)p->y.low, high = (int)p->y.high, y = p->area.bottom;

	for (int d = low; d <= high; d++) {
		if ((high - d) % (1 + (high - low) / 7))
			continue;
		tsr_chart_open_y_tick(svg, &p->area, tsr_chart_tick(&p->y, d));
		tsr_chart_close_power(svg, 10, d);
	}
	tsr_chart_put_line(svg, "axis", p->area.left, y, p->area.right, y);
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++) {
		const int x = tsr_chart_tick(&p->x, (int)i);

		tsr_chart_put_line(svg, "axis", x, y, x, y + 40);
		tsr_text_printf(svg,
				"<text class=\"tick end\" transform=\"translate(%d %d) "
				"rotate(-50)\">%s</text>\n",
				x / 10 + 4, y / 10 + 14, tsr_granularity_get(i)->name);
	}
}

/* Errors of 0 are at the bottom. */
static int y_of(const struct plot *p, double value)
{
	return value > 0 ? tsr_chart_at(&p->y, value) : p->y.from;
}

/* Blocks of several rows are another series than groups in a row. */
static bool begins_blocks(unsigned i)
{
	return tsr_granularity_get(i)->rows > 1 && tsr_granularity_get(i - 1)->rows <= 1;
}

static void put_line(struct tsr_text *svg, const struct tsr_granularity_figures *f,
		     enum tsr_fp8 format, const struct plot *p, int line)
{
	tsr_text_printf(svg, "<g class=\"curve c%d\"><path d=\"", line);
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++)
		tsr_chart_put_point(svg, i > 0 && !begins_blocks(i), tsr_chart_tick(&p->x, (int)i),
				    y_of(p, value_of(f, format, i, line)));
	tsr_text_puts(svg, "\"/>\n");
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++)
		tsr_chart_put_marker(svg, tsr_chart_tick(&p->x, (int)i),
				     y_of(p, value_of(f, format, i, line)), (unsigned)line);
	tsr_text_puts(svg, "</g>\n");
}

static void put_panel(struct tsr_text *svg, const struct tsr_granularity_figures *f,
		      enum tsr_fp8 format, int left, int top, int width)
{
	static const char *const keys[LINES] = { "median of the tensors", "largest" };
	const struct plot p = plan(f, left, top, width);

	tsr_chart_open_panel(svg, tsr_fp8_name(format), "", &p.area);
	tsr_chart_open_label(svg, "title", left + 60, top + 270);
	tsr_text_printf(
		svg, "%s<tspan class=\"unit\"> NMSE by what shares a scale, log</tspan></text>\n",
		tsr_fp8_title(format));
	put_axes(svg, &p);
	for (int i = 0; i < LINES; i++) {
		const int x = p.area.left + 1800 * i;

		tsr_text_printf(svg, "<g class=\"curve c%d\">", i);
		tsr_chart_put_sample(svg, x, top + 450, (unsigned)i, "", "");
		tsr_chart_put_label(svg, "key", x + 420, top + 490, keys[i]);
		put_line(svg, f, format, &p, i);
	}
	tsr_text_puts(svg, "</g>\n");
}

void tsr_granularity_chart_put(const struct tsr_granularity_figures *f, const char *id, int width,
			       int columns, struct tsr_text *svg)
{
	const int each = 10 * width / columns, rows = TSR_FP8_COUNT / columns;
	const struct tsr_chart_head head = { .id = id,
					     .class = "audit",
					     .width = width,
					     .height = rows * (HEAD + PLOT + FOOT) / 10,
					     .label = "Errors of 8-bit floats by granularity",
					     .style = tsr_audit_chart_style };

	tsr_chart_open(svg, &head);
	for (int i = 0; i < TSR_FP8_COUNT; i++)
		put_panel(svg, f, (enum tsr_fp8)i, i % columns * each,
			  i / columns * (HEAD + PLOT + FOOT), each);
	tsr_text_puts(svg, "</svg>\n");
}
