/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of figures over steps: axes, limits and lines.  Coordinates are integers in tenths of a pixel. */
#include "report/charts/replay_plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "replay/replay_result.h"
#include "replay/replay_figures.h"

/* --- Axes ------------------------------------------------------------------------------------- */

/* Distances within a panel. */
enum {
	LEFT = 540,
	RIGHT = 130,
	TOP = 470, /* from the top of the panel to the plot */
	BOTTOM = 320, /* from the x axis to the end of the panel */
	EDGE = 150 /* between the plot and the lines for zero and infinity */
};

static void set_log(struct tsr_chart_scale *y, const struct tsr_curve *c)
{
	y->log = true;
	y->low = floor(tsr_chart_log10(c->least) + 1e-9);
	y->high = ceil(tsr_chart_log10(c->most) - 1e-9);
	if (y->high <= y->low)
		y->high++;
}

static void set_scale(struct tsr_plot *p, const struct tsr_curve *c)
{
	const bool any = c->most > 0;
	double step;

	if (any && (c->kind->wide_log || c->most >= 100 * c->least)) {
		set_log(&p->y, c);
		return;
	}
	step = tsr_chart_round_step(any ? c->most / 4 : 1);
	p->nticks = any ? (int)ceil(c->most / step - 1e-9) : 1;
	p->y.high = step * p->nticks;
	p->step = step;
}

static int y_of(const struct tsr_plot *p, double value)
{
	if (isinf(value))
		return p->ceiling;
	if (!(value > 0))
		return p->y.log ? p->floor : p->y.from;
	return tsr_chart_at(&p->y, value);
}

/* A single step is drawn in the middle. */
static int x_of(const struct tsr_plot *p, size_t i)
{
	if (p->nsteps < 2)
		return (p->x.from + p->x.to) / 2;
	return tsr_chart_at(&p->x, (double)i);
}

/* "0.02", or with more digits "2 x 10^-7". */
static void put_value(struct tsr_text *svg, const struct tsr_plot *p, double value)
{
	const int exponent = value > 0 ? (int)floor(tsr_chart_log10(value) + 1e-9) : 0;

	tsr_chart_open_y_tick(svg, &p->area, y_of(p, value));
	if (exponent >= -3 && exponent <= 4) {
		tsr_text_printf(svg, "%.5g</text>\n", value);
		return;
	}
	tsr_text_printf(svg, "%.3g\xc2\xb7", tsr_chart_times_power(value, -exponent));
	tsr_chart_close_power(svg, 10, exponent);
}

/* Labels are powers of ten, or numbers for percentages. */
static void put_decade(struct tsr_text *svg, const struct tsr_plot *p, bool percent, int decade)
{
	static const char *const names[] = { "0.001", "0.01", "0.1", "1", "10", "100" };

	tsr_chart_open_y_tick(svg, &p->area, tsr_chart_tick(&p->y, decade));
	if (percent && decade >= -3 && decade <= 2)
		tsr_text_printf(svg, "%s</text>\n", names[decade + 3]);
	else
		tsr_chart_close_power(svg, 10, decade);
}

/* Where there are few decades, there is room for lines at 2 and 5 times a power. */
static void put_decades(struct tsr_text *svg, const struct tsr_plot *p, bool percent)
{
	const int low = (int)p->y.low, high = (int)p->y.high;
	const int every = 1 + (high - low - 1) / 5;

	for (int d = low; d <= high; d++) {
		if ((high - d) % every == 0)
			put_decade(svg, p, percent, d);
		for (int m = 2; m <= 5 && high - low <= 2 && d < high; m += 3)
			put_value(svg, p, tsr_chart_times_power(m, d));
	}
}

static void put_y_axis(struct tsr_text *svg, const struct tsr_plot *p, const struct tsr_curve *c)
{
	if (p->y.log)
		put_decades(svg, p, c->kind->percent);
	for (int i = 0; !p->y.log && i <= p->nticks; i++)
		put_value(svg, p, i * p->step);
	if (p->y.log && c->zero)
		tsr_chart_put_y_tick(svg, &p->area, p->floor, "0");
	if (c->infinite)
		tsr_chart_put_y_tick(svg, &p->area, p->ceiling, "\xe2\x88\x9e");
}

/* Ticks at multiples of a round number of steps. */
static void put_x_axis(struct tsr_text *svg, const struct tsr_plot *p, const struct tsr_replay *r)
{
	const struct tsr_chart_area *a = &p->area;
	const int room = (a->right - a->left) / 600, y = a->bottom;
	const uint64_t first = r->steps[0].step;
	uint64_t every = (uint64_t)tsr_chart_round_step((double)r->nsteps / (room > 2 ? room : 2));

	every += every == 0;
	tsr_chart_put_line(svg, "axis", a->left, y, a->right, y);
	for (size_t i = 0; i < r->nsteps; i++) {
		const int x = x_of(p, i);

		if ((first + i) % every != 0 && r->nsteps > 1)
			continue;
		tsr_chart_put_line(svg, "axis", x, y, x, y + 40);
		tsr_chart_open_label(svg, "tick mid", x, y + 160);
		tsr_text_printf(svg, "%" PRIu64 "</text>\n", first + i);
	}
	tsr_chart_put_label(svg, "tick end", a->left - 60, y + 160, "step");
}

/* A line at the error that is a threshold. */
static void put_limit(struct tsr_text *svg, const struct tsr_plot *p, double value,
		      const char *text)
{
	const int y = y_of(p, value);

	if (!p->y.log || y < p->y.to || y > p->y.from)
		return;
	tsr_chart_put_line(svg, "limit", p->area.left, y, p->area.right, y);
	tsr_chart_put_label(svg, "note", p->area.left + 40, y - 30, text);
}

/* --- Lines ------------------------------------------------------------------------------------ */

/* Consecutive steps that share a pixel, drawn from the first to the highest, lowest and last. */
struct bin {
	int x, first, low, high, last;
};

static void put_bin(struct tsr_text *svg, const struct bin *b, bool pen)
{
	tsr_chart_put_point(svg, pen, b->x, b->first);
	if (b->high != b->first)
		tsr_chart_put_point(svg, true, b->x, b->high);
	if (b->low != b->high)
		tsr_chart_put_point(svg, true, b->x, b->low);
	if (b->last != b->low)
		tsr_chart_put_point(svg, true, b->x, b->last);
	if (!pen)
		tsr_chart_put_dot(svg);
}

/*
 * The path through the values; a step without one breaks it.  With many steps, each pixel column
 * keeps its extremes, so no outlier is lost.
 */
static void put_path(struct tsr_text *svg, const struct tsr_plot *p, const double *values)
{
	const bool many = p->nsteps > (size_t)(p->area.right - p->area.left) / 20;
	struct bin bin = { 0 };
	bool open = false, pen = false;

	tsr_text_puts(svg, "<path fill=\"none\" d=\"");
	for (size_t i = 0; i < p->nsteps; i++) {
		const int exact = x_of(p, i), x = many ? exact / 10 * 10 : exact;
		const int y = isnan(values[i]) ? 0 : y_of(p, values[i]);

		if (open && (isnan(values[i]) || x != bin.x)) {
			put_bin(svg, &bin, pen);
			pen = true;
			open = false;
		}
		if (isnan(values[i])) {
			pen = false;
		} else if (open) {
			bin.high = y < bin.high ? y : bin.high;
			bin.low = y > bin.low ? y : bin.low;
			bin.last = y;
		} else {
			bin = (struct bin){ x, y, y, y, y };
			open = true;
		}
	}
	if (open)
		put_bin(svg, &bin, pen);
	tsr_text_puts(svg, "\"/>\n");
}

/* The most steps for which each has a marker. */
#define MARKED 40

void tsr_plot_put_line(struct tsr_text *svg, const struct tsr_plot *p, const char *class,
		       const double *values, unsigned shape)
{
	tsr_text_printf(svg, "<g class=\"%s\">\n", class);
	put_path(svg, p, values);
	for (size_t i = 0; i < p->nsteps && p->nsteps <= MARKED; i++) {
		if (!isnan(values[i]))
			tsr_chart_put_marker(svg, x_of(p, i), y_of(p, values[i]), shape);
	}
	tsr_text_puts(svg, "</g>\n");
}

/* --- Panels ----------------------------------------------------------------------------------- */

/* Where a panel at these coordinates draws what. */
static struct tsr_plot plan(const struct tsr_replay *r, const struct tsr_curve *c, int left,
			    int top, int width)
{
	const struct tsr_chart_area area = { left + LEFT, left + width - RIGHT, top + TOP,
					     top + TSR_PLOT_HEIGHT - BOTTOM };
	struct tsr_plot p = {
		.area = area, .ceiling = area.top, .floor = area.bottom - 60, .nsteps = r->nsteps
	};

	set_scale(&p, c);
	p.x = (struct tsr_chart_scale){ area.left, area.right, 0, (double)p.nsteps - 1, false };
	p.y.from = p.floor - (p.y.log && c->zero ? EDGE : 0);
	p.y.to = p.ceiling + (c->infinite ? EDGE : 0);
	return p;
}

struct tsr_plot tsr_plot_open(struct tsr_text *svg, const struct tsr_replay *r,
			      const struct tsr_curve *c, unsigned panel, int left, int top,
			      int width)
{
	const struct tsr_plot p = plan(r, c, left, top, width);
	struct tsr_chart_area steps = p.area;
	char name[16];

	snprintf(name, sizeof(name), "%u", panel);
	steps.left = x_of(&p, 0);
	steps.right = x_of(&p, p.nsteps - 1);
	tsr_chart_open_panel(svg, name, "", &steps);
	tsr_chart_open_label(svg, "title", left + 60, top + 270);
	tsr_text_printf(svg, "%s%s%s%s%s</text>\n", c->kind->title,
			*c->kind->unit ? "<tspan class=\"unit\"> " : "", c->kind->unit,
			p.y.log ? ", log" : "", *c->kind->unit ? "</tspan>" : "");
	put_y_axis(svg, &p, c);
	put_x_axis(svg, &p, r);
	return p;
}

void tsr_plot_close(struct tsr_text *svg, const struct tsr_plot *p, const struct tsr_curve *c)
{
	if (c->kind->figure == TSR_FIGURE_UPDATE_NMSE) {
		put_limit(svg, p, TSR_REPLAY_DIVERGED, "as large as the update");
		put_limit(svg, p, TSR_REPLAY_DRIFTING, "10% of its length");
	}
	if (c->kind->figure == TSR_FIGURE_UPDATE_QUANT)
		put_limit(svg, p, TSR_REPLAY_DIVERGED, "as large as the update");
	tsr_text_puts(svg, "</g>\n");
}
