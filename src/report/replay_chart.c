/* SPDX-License-Identifier: Apache-2.0 */
/* The drawing of a replay's curves.  Coordinates are integers in tenths of a pixel. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/markup.h"
#include "report/replay_curves.h"
#include "report/replay_figures.h"
#include "report/replay_report.h"

/* --- Axes ------------------------------------------------------------------------------------- */

/* Where things stand in a panel. */
enum {
	PANEL_HEIGHT = 2350,
	LEFT = 540,
	RIGHT = 130,
	TOP = 470, /* of the plot, below the title */
	BOTTOM = 320, /* of the axis, above the end of the panel */
	STRIP = 150, /* between the plot and the lines of zero and of infinity */
	HEAD = 400 /* of the whole drawing: the legend */
};

struct area {
	int left, right, top, bottom; /* of the values between 0 and infinity */
	int floor, ceiling; /* of the panel with the lines of 0 and infinity */
	bool log;
	int low, high; /* logarithmic: decades */
	double step; /* linear: between ticks */
	int nticks;
	size_t nsteps;
};

/* The least of 1, 2, 5, 10 ... that is not below a value above 0. */
static double round_step(double v)
{
	const int exponent = (int)floor(tsr_svg_log10(v));
	double unit = 1;

	for (int i = 0; i < abs(exponent); i++)
		unit *= 10;
	for (int m = 1; m <= 5; m += m == 1 ? 1 : 3) {
		const double step = exponent < 0 ? m / unit : m * unit;

		if (step >= v * 0.999999)
			return step;
	}
	return exponent < 0 ? 10 / unit : 10 * unit;
}

static void set_log(struct area *a, const struct tsr_curve *c)
{
	a->log = true;
	a->low = (int)floor(tsr_svg_log10(c->least) + 1e-9);
	a->high = (int)ceil(tsr_svg_log10(c->most) - 1e-9);
	if (a->high == a->low)
		a->high++;
}

static void set_scale(struct area *a, const struct tsr_curve *c)
{
	const bool any = c->most > 0;

	if (any && (c->kind->wide_log || c->most >= 100 * c->least)) {
		set_log(a, c);
		return;
	}
	a->step = round_step(any ? c->most / 4 : 1);
	a->nticks = any ? (int)ceil(c->most / a->step - 1e-9) : 1;
}

static int y_of(const struct area *a, double value)
{
	double share;

	if (isinf(value))
		return a->ceiling;
	if (!(value > 0))
		return a->log ? a->floor : a->bottom;
	share = a->log ? (tsr_svg_log10(value) - a->low) / (a->high - a->low)
		       : value / (a->step * a->nticks);
	return a->bottom - (int)(share * (a->bottom - a->top) + 0.5);
}

/* A step alone stands in the middle. */
static int x_of(const struct area *a, size_t i)
{
	if (a->nsteps < 2)
		return (a->left + a->right) / 2;
	return a->left + (int)((double)i / (double)(a->nsteps - 1) * (a->right - a->left) + 0.5);
}

/* "0.02", or beyond a few digits "2 x 10^-7". */
static void put_value(struct tsr_text *svg, int x, int y, double value)
{
	const int exponent = value > 0 ? (int)floor(tsr_svg_log10(value) + 1e-9) : 0;
	double unit = 1;

	tsr_svg_open_label(svg, "tick end", x, y);
	if (exponent >= -3 && exponent <= 4) {
		tsr_text_printf(svg, "%.5g</text>\n", value);
		return;
	}
	for (int i = 0; i < abs(exponent); i++)
		unit *= 10;
	tsr_text_printf(svg,
			"%.3g\xc2\xb7"
			"10<tspan class=\"up\" dy=\"-4\">%s%d</tspan></text>\n",
			exponent < 0 ? value * unit : value / unit,
			exponent < 0 ? "\xe2\x88\x92" : "", abs(exponent));
}

/* Where few decades leave room: lines at 2 and 5 times a power. */
static void put_between(struct tsr_text *svg, const struct area *a, int decade)
{
	double unit = 1;

	for (int i = 0; i < abs(decade); i++)
		unit *= 10;
	for (int m = 2; m <= 5; m += 3) {
		const double value = decade < 0 ? m / unit : m * unit;
		const int y = y_of(a, value);

		tsr_svg_put_segment(svg, "grid", a->left, y, a->right, y);
		put_value(svg, a->left - 60, y + 40, value);
	}
}

/* Powers of ten; of percentages, numbers. */
static void put_decade(struct tsr_text *svg, const struct area *a, bool percent, int decade)
{
	const int x = a->left - 60;
	const int y = a->bottom - (decade - a->low) * (a->bottom - a->top) / (a->high - a->low);

	tsr_svg_put_segment(svg, "grid", a->left, y, a->right, y);
	if (percent && decade >= -3 && decade <= 2) {
		static const char *const names[] = { "0.001", "0.01", "0.1", "1", "10", "100" };

		tsr_svg_put_label(svg, "tick end", x, y + 40, names[decade + 3]);
	} else {
		tsr_svg_put_power(svg, "tick end", x, y + 40, 10, decade);
	}
}

static void put_y_axis(struct tsr_text *svg, const struct area *a, const struct tsr_curve *c)
{
	const int decades = a->high - a->low, every = 1 + (decades - 1) / 5;

	for (int d = a->low; a->log && d <= a->high; d++) {
		if ((a->high - d) % every == 0)
			put_decade(svg, a, c->kind->percent, d);
		if (decades <= 2 && d < a->high)
			put_between(svg, a, d);
	}
	for (int i = 0; !a->log && i <= a->nticks; i++) {
		const int y = y_of(a, i * a->step);

		tsr_svg_put_segment(svg, "grid", a->left, y, a->right, y);
		put_value(svg, a->left - 60, y + 40, i * a->step);
	}
	if (a->log && c->zero) {
		tsr_svg_put_segment(svg, "grid", a->left, a->floor, a->right, a->floor);
		tsr_svg_put_label(svg, "tick end", a->left - 60, a->floor + 40, "0");
	}
	if (c->infinite) {
		tsr_svg_put_segment(svg, "grid", a->left, a->ceiling, a->right, a->ceiling);
		tsr_svg_put_label(svg, "tick end", a->left - 60, a->ceiling + 40, "\xe2\x88\x9e");
	}
}

/* Ticks at multiples of a round number of steps. */
static void put_x_axis(struct tsr_text *svg, const struct area *a, const struct tsr_replay *r)
{
	const int room = (a->right - a->left) / 600, y = a->floor + 60;
	const uint64_t first = r->steps[0].step;
	uint64_t every = (uint64_t)round_step((double)r->nsteps / (room > 2 ? room : 2));

	every += every == 0;
	tsr_svg_put_segment(svg, "axis", a->left, y, a->right, y);
	for (size_t i = 0; i < r->nsteps; i++) {
		const int x = x_of(a, i);

		if ((first + i) % every != 0 && r->nsteps > 1)
			continue;
		tsr_svg_put_segment(svg, "axis", x, y, x, y + 40);
		tsr_svg_open_label(svg, "tick mid", x, y + 160);
		tsr_text_printf(svg, "%" PRIu64 "</text>\n", first + i);
	}
	tsr_svg_put_label(svg, "tick end", a->left - 60, y + 160, "step");
}

/* A line across where errors begin to matter. */
static void put_limit(struct tsr_text *svg, const struct area *a, double value, const char *text)
{
	const int y = y_of(a, value);

	if (!a->log || y < a->top || y > a->bottom)
		return;
	tsr_svg_put_segment(svg, "limit", a->left, y, a->right, y);
	tsr_svg_put_label(svg, "note", a->left + 40, y - 30, text);
}

/* --- Lines ------------------------------------------------------------------------------------ */

static void put_point(struct tsr_text *svg, char command, int x, int y)
{
	tsr_text_put(svg, &command, 1);
	tsr_svg_put_tenths(svg, x);
	tsr_text_puts(svg, " ");
	tsr_svg_put_tenths(svg, y);
}

/* A run of steps that share a pixel: from the first to the highest, the lowest and the last. */
struct bin {
	int x, first, low, high, last;
};

static void put_bin(struct tsr_text *svg, const struct bin *b, bool pen)
{
	put_point(svg, pen ? 'L' : 'M', b->x, b->first);
	if (b->high != b->first)
		put_point(svg, 'L', b->x, b->high);
	if (b->low != b->high)
		put_point(svg, 'L', b->x, b->low);
	if (b->last != b->low)
		put_point(svg, 'L', b->x, b->last);
	/* A point alone is a dot. */
	if (!pen)
		tsr_text_puts(svg, "h0.1");
}

/*
 * The path through the values; a step without one breaks it.  Of many steps every pixel column
 * keeps its extremes, so that nothing that stands out is lost.
 */
static void put_path(struct tsr_text *svg, const struct area *a, const double *values)
{
	const bool many = a->nsteps > (size_t)(a->right - a->left) / 20;
	struct bin bin = { 0 };
	bool open = false, pen = false;

	tsr_text_puts(svg, "<path fill=\"none\" d=\"");
	for (size_t i = 0; i < a->nsteps; i++) {
		const int exact = x_of(a, i), x = many ? exact / 10 * 10 : exact;
		const int y = isnan(values[i]) ? 0 : y_of(a, values[i]);

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

/* Steps up to which each has a marker, and up to which lines may have gaps. */
#define MARKED 40
#define DASHED 400

static void put_line(struct tsr_text *svg, const struct area *a, const char *class,
		     const double *values, unsigned shape)
{
	tsr_text_printf(svg, "<g class=\"%s\">\n", class);
	put_path(svg, a, values);
	for (size_t i = 0; i < a->nsteps && a->nsteps <= MARKED; i++) {
		if (!isnan(values[i]))
			tsr_svg_put_marker(svg, x_of(a, i), y_of(a, values[i]), shape);
	}
	tsr_text_puts(svg, "</g>\n");
}

enum { CIRCLE, SQUARE };

static void put_key(struct tsr_text *svg, int x, const char *class, unsigned shape,
		    const char *text)
{
	tsr_text_printf(svg, "<g class=\"%s\"><path fill=\"none\" d=\"", class);
	put_point(svg, 'M', x, 200);
	tsr_text_puts(svg, "h34\"/>");
	tsr_svg_put_marker(svg, x + 170, 200, shape);
	tsr_text_puts(svg, "</g>\n");
	tsr_svg_put_label(svg, "key", x + 420, 240, text);
}

/* --- The whole -------------------------------------------------------------------------------- */

static void put_panel(struct tsr_text *svg, const struct tsr_curves *curves, unsigned panel,
		      int left, int top, int width)
{
	const struct tsr_curve *c = &curves->curve[panel];
	struct area a = { .left = left + LEFT,
			  .right = left + width - RIGHT,
			  .nsteps = curves->replay->nsteps };

	set_scale(&a, c);
	a.ceiling = top + TOP;
	a.top = a.ceiling + (c->infinite ? STRIP : 0);
	a.floor = top + PANEL_HEIGHT - BOTTOM - 60;
	a.bottom = a.floor - (a.log && c->zero ? STRIP : 0);
	tsr_text_printf(svg, "<g class=\"panel\" data-panel=\"%u\"", panel);
	tsr_svg_put_attribute(svg, "data-left", x_of(&a, 0));
	tsr_svg_put_attribute(svg, "data-right", x_of(&a, a.nsteps - 1));
	tsr_svg_put_attribute(svg, "data-top", a.ceiling);
	tsr_svg_put_attribute(svg, "data-bottom", a.floor + 60);
	tsr_text_puts(svg, ">\n");
	tsr_svg_open_label(svg, "title", left + 60, top + 270);
	tsr_text_printf(svg, "%s%s%s%s%s</text>\n", c->kind->title,
			*c->kind->unit ? "<tspan class=\"unit\"> " : "", c->kind->unit,
			a.log ? ", log" : "", *c->kind->unit ? "</tspan>" : "");
	put_y_axis(svg, &a, c);
	put_x_axis(svg, &a, curves->replay);
	put_line(svg, &a, "worst", c->worst, SQUARE);
	put_line(svg, &a, "all", c->total, CIRCLE);
	if (c->kind->figure == TSR_FIGURE_UPDATE_NMSE) {
		put_limit(svg, &a, TSR_REPLAY_DIVERGED, "as large as the update");
		put_limit(svg, &a, TSR_REPLAY_DRIFTING, "10% of its length");
	}
	if (c->kind->figure == TSR_FIGURE_UPDATE_QUANT)
		put_limit(svg, &a, TSR_REPLAY_DIVERGED, "as large as the update");
	tsr_text_puts(svg, "</g>\n");
}

/* Colours are given twice rather than by variables, which not every viewer of SVG knows. */
static const char style[] =
	".curves text{font:12px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif;"
	"fill:#222}.curves .title{font-weight:600;font-size:13px}.curves .unit{font-weight:400}"
	".curves .tick,.curves .note,.curves .unit{fill:#555;font-size:11px}"
	".curves .note{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}"
	".curves .up{font-size:8px}.curves .mid{text-anchor:middle}"
	".curves .end{text-anchor:end}.curves .page{fill:#fff}.curves .grid{stroke:#e3e3e3}"
	".curves .axis{stroke:#555}.curves .limit{stroke:#777;stroke-dasharray:2 3}"
	".curves path{stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}"
	".curves .all path{stroke:#0060a8}.curves .worst path{stroke:#c44e00}"
	".curves.few .worst path:first-child{stroke-dasharray:5 3}"
	".curves .marker{fill:#fff;stroke-width:1.3}"
	"@media(prefers-color-scheme:dark){.curves text{fill:#e6e6e6}"
	".curves .tick,.curves .note,.curves .unit{fill:#aab0b8}.curves .page{fill:#16191d}"
	".curves .grid{stroke:#30353c}.curves .axis{stroke:#aab0b8}.curves .limit{stroke:#8a9099}"
	".curves .all path{stroke:#6cb8f0}.curves .worst path{stroke:#ff9d5c}"
	".curves .marker{fill:#16191d}.curves .note{stroke:#16191d}}";

void tsr_curves_put(const struct tsr_curves *c, const struct tsr_curves_layout *layout,
		    struct tsr_text *svg)
{
	const int columns = layout->columns, width = 10 * layout->width / columns;
	const unsigned rows = (c->n + (unsigned)columns - 1) / (unsigned)columns;
	const int height = (HEAD + (int)rows * PANEL_HEIGHT + 60) / 10;

	tsr_text_printf(svg,
			"<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"%s\" class=\"curves%s\" "
			"width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
			"aria-label=\"Figures of the replay over steps\">\n<style>%s</style>\n"
			"<rect class=\"page\" width=\"100%%\" height=\"100%%\"/>\n",
			layout->id, c->replay->nsteps <= DASHED ? " few" : "", layout->width,
			height, layout->width, height, style);
	if (c->n) {
		put_key(svg, 60, "all", CIRCLE, "all tensors");
		put_key(svg, 1360, "worst", SQUARE, "worst tensor of each step");
	} else {
		tsr_svg_put_label(svg, "key", 60, 240, "no step was compared with FP32");
	}
	for (unsigned i = 0; i < c->n; i++)
		put_panel(svg, c, i, (int)i % columns * width,
			  HEAD + (int)i / columns * PANEL_HEIGHT, width);
	tsr_text_puts(svg, "</svg>\n");
}

void tsr_replay_put_svg(const struct tsr_replay *r, struct tsr_text *svg)
{
	const struct tsr_curves_layout layout = { .id = "replay", .width = 960, .columns = 2 };
	struct tsr_curves c;

	if (!tsr_curves_find(&c, r)) {
		svg->failed = true;
		return;
	}
	tsr_curves_put(&c, &layout, svg);
	tsr_curves_free(&c);
}
