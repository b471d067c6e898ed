/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of lines: axes, limits and paths.  Coordinates are integers in tenths of a pixel. */
#include "render/plot.h"

#include <inttypes.h>

/* --- Axes ------------------------------------------------------------------------------------- */

/* Distances within a panel. */
enum {
	LEFT = 560,
	RIGHT = 160,
	TITLE = 470, /* from the top of the panel to its keys */
	PLOT = 1560,
	FLOOR = 60, /* between the axis and the least value */
	EDGE = 150 /* between the plot and the lines for zero and infinity */
};

int tsr_lines_height(const struct tsr_lines *l)
{
	return TITLE + l->head + PLOT + (l->name_of ? 560 : 320);
}

static int x_of(const struct tsr_lines *l, size_t i)
{
	/* A single place is in the middle. */
	if (l->n < 2)
		return (l->x.from + l->x.to) / 2;
	return tsr_axis_at(&l->x, (double)i);
}

static int y_of(const struct tsr_lines *l, double value)
{
	return isinf(value) ? l->y.infinity : tsr_axis_at(&l->y, value);
}

/* "0.02", or with more digits "2 x 10^-7". */
static void put_value(struct tsr_text *svg, const struct tsr_lines *l, double value)
{
	const int exponent = value > 0 ? (int)floor(tsr_chart_log10(value) + 1e-9) : 0;

	tsr_chart_open_y_tick(svg, &l->area, y_of(l, value));
	if (exponent >= -3 && exponent <= 4) {
		tsr_text_printf(svg, "%.5g</text>\n", value);
		return;
	}
	tsr_text_printf(svg, "%.3g\xc2\xb7", tsr_chart_times_power(value, -exponent));
	tsr_chart_close_power(svg, 10, exponent);
}

/* Labels are powers of ten, or numbers for percentages; few decades have lines at 2 and 5, too. */
static void put_decades(struct tsr_text *svg, const struct tsr_lines *l)
{
	static const char *const names[] = { "0.001", "0.01", "0.1", "1", "10", "100" };
	const int low = (int)l->y.low, high = (int)l->y.high, every = tsr_axis_every(&l->y, 260);

	for (int d = low; d <= high; d++) {
		if ((high - d) % every == 0)
			tsr_chart_open_y_tick(svg, &l->area, tsr_axis_tick(&l->y, d));
		if ((high - d) % every == 0 && l->percent && d >= -3 && d <= 2)
			tsr_text_printf(svg, "%s</text>\n", names[d + 3]);
		else if ((high - d) % every == 0)
			tsr_chart_close_power(svg, 10, d);
		for (int m = 2; m <= 5 && high - low <= 2 && d < high; m += 3)
			put_value(svg, l, tsr_chart_times_power(m, d));
	}
}

/* Names, or numbers at multiples of a round one. */
static void put_x_axis(struct tsr_text *svg, const struct tsr_lines *l)
{
	const struct tsr_chart_area *a = &l->area;
	const int room = (a->right - a->left) / 600, y = a->bottom;
	uint64_t every = (uint64_t)tsr_chart_round_step((double)l->n / (room > 2 ? room : 2));

	every = l->name_of || every == 0 ? 1 : every;
	tsr_chart_put_line(svg, "axis", a->left, y, a->right, y);
	for (size_t i = 0; i < l->n; i++) {
		const int x = x_of(l, i);

		if ((l->first + i) % every != 0 && l->n > 1)
			continue;
		tsr_chart_put_line(svg, "axis", x, y, x, y + 40);
		if (l->name_of) {
			tsr_text_printf(svg,
					"<text class=\"tick end\" transform=\"translate(%d %d) "
					"rotate(-50)\">%s</text>\n",
					x / 10 + 4, y / 10 + 14, l->name_of(i));
			continue;
		}
		tsr_chart_open_label(svg, "tick mid", x, y + 160);
		tsr_text_printf(svg, "%" PRIu64 "</text>\n", l->first + i);
	}
	if (l->word)
		tsr_chart_put_label(svg, "tick end", a->left - 150, y + 160, l->word);
}

/* --- Lines ------------------------------------------------------------------------------------ */

/* Neighbours that share a pixel, drawn from the first to the highest, lowest and last. */
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
 * The path through the values; a NaN breaks it.  Where there are many, each pixel column
 * keeps its extremes, so no outlier is lost.
 */
static void put_path(struct tsr_text *svg, const struct tsr_lines *l, const double *values)
{
	const bool many = l->n > (size_t)(l->area.right - l->area.left) / 20;
	struct bin bin = { 0 };
	bool open = false, pen = false;

	tsr_text_puts(svg, "<path fill=\"none\" d=\"");
	for (size_t i = 0; i < l->n; i++) {
		const int exact = x_of(l, i), x = many ? exact / 10 * 10 : exact;
		const int y = isnan(values[i]) ? 0 : y_of(l, values[i]);

		if (open && (isnan(values[i]) || x != bin.x || i == l->break_at)) {
			put_bin(svg, &bin, pen);
			pen = i != l->break_at;
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

/* The most places of which each has a marker. */
#define MARKED 40

void tsr_lines_put(struct tsr_text *svg, const struct tsr_lines *l, const char *class,
		   const double *values, unsigned shape)
{
	tsr_text_printf(svg, "<g class=\"%s\">\n", class);
	put_path(svg, l, values);
	for (size_t i = 0; i < l->n && l->n <= MARKED; i++) {
		if (!isnan(values[i]))
			tsr_chart_put_marker(svg, x_of(l, i), y_of(l, values[i]), shape);
	}
	tsr_text_puts(svg, "</g>\n");
}

void tsr_lines_put_limit(struct tsr_text *svg, const struct tsr_lines *l, double value,
			 const char *text)
{
	const int y = y_of(l, value);

	if (!l->y.log || y < l->y.to || y > l->y.from)
		return;
	tsr_chart_put_line(svg, "limit", l->area.left, y, l->area.right, y);
	tsr_chart_put_label(svg, "note", l->area.left + 40, y - 30, text);
}

/* --- Panels ----------------------------------------------------------------------------------- */

void tsr_lines_open(struct tsr_text *svg, struct tsr_lines *l, int left, int top, int width)
{
	const int first = top + TITLE + l->head;
	struct tsr_axis *y = &l->y;
	const bool any = y->most > 0;
	struct tsr_chart_area places;
	double step;

	l->area = (struct tsr_chart_area){ left + LEFT, left + width - RIGHT, first, first + PLOT };
	l->x = tsr_axis_of(l->area.left, l->area.right, 0, (double)l->n - 1, false);
	tsr_axis_fit(y, l->area.bottom - FLOOR, l->area.top, EDGE);
	/* A linear axis where the values lie within two decades and none is needed. */
	if (!any || (!l->wide_log && y->most < 100 * y->least)) {
		step = tsr_chart_round_step(any ? y->most / 4 : 1);
		l->nticks = any ? (int)ceil(y->most / step - 1e-9) : 1;
		y->log = false;
		y->from = l->area.bottom - FLOOR;
		y->low = 0;
		y->high = step * l->nticks;
	}
	places = l->area;
	places.left = x_of(l, 0);
	places.right = x_of(l, l->n - 1);
	tsr_chart_open_panel(svg, l->name, "", &places);
	tsr_chart_open_label(svg, "title", left + 60, top + 270);
	tsr_text_printf(svg, "%s%s%s%s%s</text>\n", l->title,
			*l->unit ? " <tspan class=\"unit\">" : "", l->unit, l->y.log ? ", log" : "",
			*l->unit ? "</tspan>" : "");
	if (l->y.log)
		put_decades(svg, l);
	for (int i = 0; !l->y.log && i <= l->nticks; i++)
		put_value(svg, l, i * l->y.high / l->nticks);
	if (l->y.log && l->y.any_zero)
		tsr_chart_put_y_tick(svg, &l->area, l->y.zero, "0");
	if (l->y.any_infinite)
		tsr_chart_put_y_tick(svg, &l->area, l->y.infinity, "\xe2\x88\x9e");
	put_x_axis(svg, l);
}
