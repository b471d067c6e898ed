/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of a sweep.  Coordinates are integers in tenths of a pixel. */
#include "report/charts/charts.h"

#include <stdio.h>

/* --- Panels ----------------------------------------------------------------------------------- */

/* A range of exponents that is marked and named. */
struct mark {
	int from, to; /* of the panel's exponents */
	const char *text;
};

static const struct panel {
	const char *title;
	enum tsr_dtype dtype;
	int first, last; /* exponents, 0 for 1 <= x < 2 */
	struct mark subnormal, other;
	const int ticks[12]; /* up to the first repetition */
} panels[TSR_PANEL_COUNT] = {
	[TSR_PANEL_BF16] = { .title = "BF16",
			     .dtype = TSR_BF16,
			     .first = -127,
			     .last = 127,
			     .subnormal = { -127, -126, "subnormal" },
			     .ticks = { -126, -96, -64, -32, 0, 32, 64, 96, 127, 127 } },
	[TSR_PANEL_FP16] = { .title = "FP16",
			     .dtype = TSR_F16,
			     .first = -45,
			     .last = 17,
			     .subnormal = { -24, -14, "subnormal" },
			     .other = { 16, 17, "overflow" },
			     .ticks = { -40, -32, -24, -14, -8, 0, 8, 16, 16 } },
	[TSR_PANEL_E5M2] = { .title = "FP8 (E5M2)",
			     .dtype = TSR_F8_E5M2,
			     .first = -37,
			     .last = 17,
			     .subnormal = { -16, -14, "subnormal" },
			     .other = { 16, 17, "overflow" },
			     .ticks = { -32, -24, -16, -14, -8, 0, 8, 16, 16 } },
	[TSR_PANEL_E4M3] = { .title = "FP8 (E4M3)",
			     .dtype = TSR_F8_E4M3,
			     .first = -30,
			     .last = 10,
			     .subnormal = { -9, -6, "subnormal" },
			     .other = { 9, 10, "overflow" },
			     .ticks = { -24, -16, -9, -6, -3, 0, 3, 6, 9, 9 } },
};

enum tsr_sweep_panel tsr_sweep_panel_of(const struct tsr_codec *codec)
{
	unsigned p = 0;

	while (p < TSR_PANEL_COUNT && panels[p].dtype != codec->planes[0].dtype)
		p++;
	return (enum tsr_sweep_panel)p;
}

const char *tsr_sweep_panel_name(enum tsr_sweep_panel panel)
{
	return panel < TSR_PANEL_COUNT ? panels[panel].title : "";
}

/* The most members of a family that are all shown at first. */
#define FAMILY_SHOWN 3

bool tsr_sweep_chart_shows(const struct tsr_sweep *s, const struct tsr_codec *codec)
{
	unsigned relatives = 0;

	if (tsr_sweep_panel_of(codec) == TSR_PANEL_COUNT)
		return false;
	if (!codec->family)
		return true;
	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_codec *c = s->results[i].codec;

		relatives += c->family && strcmp(c->family, codec->family) == 0;
		/* Decoding undoes the rounding: the line would be that of the truncated split, or half. */
		if (c->row < codec->row && c->extra_bits == codec->extra_bits &&
		    c->planes[0].dtype == codec->planes[0].dtype)
			return false;
	}
	return relatives <= FAMILY_SHOWN || codec->extra_bits == 4 || codec->extra_bits == 8 ||
	       codec->extra_bits == 12;
}

/* --- Styles: distinct without colour, too --------------------------------------------------- */

/* Behind the colours of classes s0 to s7. */
static const char *const dashes[] = { "", "7 3", "2 2", "9 3 2 3", "", "5 2", "12 4", "1 3" };

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))
#define NSTYLES COUNT_OF(dashes)

/*
 * Whether two codecs differ in the narrow format only: "bf16+ulp8" and "fp16+ulp8",
 * "bf16+bf16" and "fp16+fp16".  They share a style.
 */
static bool alike(const struct tsr_codec *a, const struct tsr_codec *b)
{
	if (a->correction != b->correction || a->extra_bits != b->extra_bits ||
	    (a->family && b->family && strcmp(strchr(a->family, '+'), strchr(b->family, '+')) != 0))
		return false;
	return a->correction != TSR_CORRECTION_ULP || a->planes[1].dtype == b->planes[1].dtype;
}

/* Counts the different styles before a codec, among those shown at first or the others. */
static unsigned style_of(const struct tsr_sweep *s, unsigned codec)
{
	const struct tsr_codec *c = s->results[codec].codec;
	const bool shown = tsr_sweep_chart_shows(s, c);
	unsigned n = 0;

	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_codec *other = s->results[i].codec;
		bool first = tsr_sweep_chart_shows(s, other) == shown &&
			     tsr_sweep_panel_of(other) != TSR_PANEL_COUNT;

		for (unsigned j = 0; j < i && first; j++)
			first = !alike(s->results[j].codec, other) ||
				tsr_sweep_panel_of(s->results[j].codec) == TSR_PANEL_COUNT;
		if (alike(c, other))
			return n;
		n += first;
	}
	return n;
}

static void put_style(struct tsr_text *svg, unsigned style)
{
	const unsigned i = style % NSTYLES;

	if (dashes[i][0])
		tsr_text_printf(svg, " stroke-dasharray=\"%s\"", dashes[i]);
}

/* --- Coordinates ------------------------------------------------------------------------------ */

struct plot {
	struct tsr_chart_area area; /* the bottom is the x axis */
	struct tsr_axis x, y; /* exponents; decades of errors, from 1 at the top */
	int zero; /* where an error of 0 is drawn, below the scale */
	const struct panel *panel;
};

static int x_of(const struct plot *p, int exponent)
{
	return tsr_axis_tick(&p->x, exponent);
}

static int y_of(const struct plot *p, double error)
{
	int y;

	if (!(error > 0))
		return p->zero;
	y = tsr_axis_at(&p->y, error);
	return y < p->y.from ? p->y.from : y > p->y.to ? p->y.to : y;
}

/* --- Axes ------------------------------------------------------------------------------------- */

static void put_mark(struct tsr_text *svg, const struct plot *p, const struct mark *m)
{
	const struct tsr_chart_area *a = &p->area;
	const int from = x_of(p, m->from), to = x_of(p, m->to), y = a->top + 150;

	if (!m->text)
		return;
	tsr_chart_put_rect(svg, "mark", from, a->top, to - from, a->bottom - a->top);
	tsr_chart_put_line(svg, "edge", from, a->top, from, a->bottom);
	tsr_chart_put_line(svg, "edge", to, a->top, to, a->bottom);
	if (to - from > 700)
		tsr_chart_put_label(svg, "note mid", (from + to) / 2, y, m->text);
	else if (from > a->left + (a->right - a->left) / 2)
		tsr_chart_put_label(svg, "note end", from - 50, y, m->text);
	else
		tsr_chart_put_label(svg, "note", to + 50, y, m->text);
}

static void put_axes(struct tsr_text *svg, const struct plot *p)
{
	const struct tsr_chart_area *a = &p->area;
	const int *ticks = p->panel->ticks;

	put_mark(svg, p, &p->panel->subnormal);
	put_mark(svg, p, &p->panel->other);
	for (int d = 0; d >= (int)p->y.high; d--) {
		const int y = tsr_axis_tick(&p->y, d);

		if (d % 2 != 0) {
			tsr_chart_put_line(svg, "grid", a->left, y, a->right, y);
		} else {
			tsr_chart_open_y_tick(svg, a, y);
			tsr_chart_close_power(svg, 10, d);
		}
	}
	tsr_chart_put_y_tick(svg, a, p->zero, "0");
	tsr_chart_put_line(svg, "axis", a->left, a->bottom, a->right, a->bottom);
	for (unsigned i = 0; !i || ticks[i] != ticks[i - 1]; i++) {
		const int x = x_of(p, ticks[i]);

		tsr_chart_put_line(svg, "axis", x, a->bottom, x, a->bottom + 50);
		tsr_chart_open_label(svg, "tick mid", x, a->bottom + 190);
		tsr_chart_close_power(svg, 2, ticks[i]);
	}
	tsr_chart_put_label(svg, "title", a->left, a->top - 100, p->panel->title);
}

/* --- Lines ------------------------------------------------------------------------------------ */

/* The row of an exponent; NULL if nothing was compared. */
static const struct tsr_sweep_row *row_at(const struct tsr_sweep_result *r, int exponent)
{
	const int field = exponent + 127;
	const struct tsr_sweep_row *row = &r->rows[field >= 0 && field < 255 ? field : 255];

	return row->compared ? row : NULL;
}

/* The path through the means; points in the middle of a level stretch are left out. */
static void put_path(struct tsr_text *svg, const struct plot *p, const struct tsr_sweep_result *r)
{
	bool pen = false;

	tsr_text_puts(svg, "<path fill=\"none\" d=\"");
	for (int e = p->panel->first; e <= p->panel->last; e++) {
		const struct tsr_sweep_row *row = row_at(r, e), *before = row_at(r, e - 1);
		const struct tsr_sweep_row *after = row_at(r, e + 1);
		const int y = row ? y_of(p, tsr_sweep_row_mean(row)) : 0;

		if (row && pen && before && after && e < p->panel->last &&
		    y_of(p, tsr_sweep_row_mean(before)) == y &&
		    y_of(p, tsr_sweep_row_mean(after)) == y)
			continue;
		if (row) {
			tsr_chart_put_point(svg, pen, x_of(p, e), y);
			if (!pen && !after)
				tsr_chart_put_dot(svg);
		}
		pen = row != NULL;
	}
	tsr_text_puts(svg, "\"/>\n");
}

/* Lines have their markers at different exponents; a short line has one at its start. */
static void put_markers(struct tsr_text *svg, const struct plot *p,
			const struct tsr_sweep_result *r, unsigned style)
{
	const int span = p->panel->last - p->panel->first, step = span / 6;
	int next = p->panel->first + 1 + (int)(style % NSTYLES) * step / (int)NSTYLES;
	bool none = true;

	for (int e = next; e <= p->panel->last; e += step)
		none = none && !row_at(r, e);
	for (int e = p->panel->first; e <= p->panel->last; e++) {
		const struct tsr_sweep_row *row = row_at(r, e);

		if (row && (none || e == next)) {
			tsr_chart_put_marker(svg, x_of(p, e), y_of(p, tsr_sweep_row_mean(row)),
					     style);
			none = false;
		}
		next += e == next ? step : 0;
	}
}

static void put_sample(struct tsr_text *svg, int x, int y, unsigned style, const char *name)
{
	char class[8];

	snprintf(class, sizeof(class), "s%u", style % (unsigned)NSTYLES);
	tsr_text_puts(svg, "<g");
	put_style(svg, style);
	tsr_text_puts(svg, ">");
	tsr_chart_put_key(svg, x, y, class, style, name);
	tsr_text_puts(svg, "</g>\n");
}

void tsr_sweep_chart_put_sample(const struct tsr_sweep *s, unsigned codec, struct tsr_text *svg)
{
	tsr_text_puts(svg, "<svg class=\"sample\" width=\"36\" height=\"12\" viewBox=\"0 0 36 12\" "
			   "aria-hidden=\"true\">");
	put_sample(svg, 10, 60, style_of(s, codec), "");
	tsr_text_puts(svg, "</svg>");
}

/* --- The whole -------------------------------------------------------------------------------- */

/* Decades down to the least error that is drawn. */
static int decades_of(const struct tsr_sweep *s)
{
	double least = 1;
	int decades = 1;

	for (unsigned i = 0; i < s->ncodecs; i++) {
		for (unsigned e = 0; e + 1 < TSR_SWEEP_ROWS; e++) {
			const double mean = tsr_sweep_row_mean(&s->results[i].rows[e]);

			least = mean > 0 && mean < least ? mean : least;
		}
	}
	while (decades < 16 && -tsr_chart_log10(least) > decades)
		decades++;
	return decades + decades % 2;
}

static bool has_panel(const struct tsr_sweep *s, unsigned panel)
{
	for (unsigned i = 0; i < s->ncodecs; i++) {
		if (tsr_sweep_panel_of(s->results[i].codec) == panel)
			return true;
	}
	return false;
}

static void put_panel(struct tsr_text *svg, const struct tsr_sweep *s, unsigned which,
		      const struct tsr_chart_frame *f, int top, int height)
{
	const struct panel *panel = &panels[which];
	const struct tsr_chart_area area = { .left = 520,
					     .right = 10 * f->width - (f->page ? 160 : 1900),
					     .top = top + 320,
					     .bottom = top + height - 520 };
	const struct plot p = {
		.area = area,
		.x = tsr_axis_of(area.left, area.right, panel->first, panel->last, false),
		.y = tsr_axis_of(area.top, area.bottom - 230, 0, -decades_of(s), true),
		.zero = area.bottom - 80,
		.panel = panel,
	};
	char exponents[64];
	int y = area.top + 60; /* of the legend */

	snprintf(exponents, sizeof(exponents), " data-first=\"%d\" data-last=\"%d\"", panel->first,
		 panel->last);
	tsr_chart_open_panel(svg, panel->title, exponents, &area);
	put_axes(svg, &p);
	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_codec *c = s->results[i].codec;

		const bool shows = tsr_sweep_chart_shows(s, c);
		const unsigned style = style_of(s, i);

		if (tsr_sweep_panel_of(c) != which || !(f->page || shows))
			continue;
		tsr_text_printf(svg, "<g class=\"line s%u%s\" data-codec=\"%s\"",
				style % (unsigned)NSTYLES, shows ? "" : " off", c->name);
		put_style(svg, style);
		tsr_text_puts(svg, ">\n");
		put_path(svg, &p, &s->results[i]);
		put_markers(svg, &p, &s->results[i], style);
		tsr_text_puts(svg, "</g>\n");
	}
	for (unsigned i = 0; i < s->ncodecs && !f->page; i++) {
		const struct tsr_codec *c = s->results[i].codec;

		if (!tsr_sweep_chart_shows(s, c) || tsr_sweep_panel_of(c) != which)
			continue;
		put_sample(svg, area.right + 200, y, style_of(s, i), c->name);
		y += 190;
	}
	tsr_chart_put_label(svg, "unit mid", (area.left + area.right) / 2, area.bottom + 400,
			    "|x|, from this power of two to the next");
	tsr_text_puts(svg, "</g>\n");
}

void tsr_sweep_chart_put(const void *ctx, const struct tsr_chart_frame *f, struct tsr_text *svg)
{
	const int height = !f->page ? 360 : f->columns > 1 ? 380 : 330;
	int total = 14, top = 140;

	for (unsigned p = 0; p < TSR_PANEL_COUNT; p++)
		total += has_panel(ctx, p) ? height : 0;
	tsr_chart_open(svg, f, "", total, "Mean relative error against exponent");
	tsr_chart_put_label(svg, "unit", 60, 160, "mean relative error |x \xe2\x88\x92 y| / |x|");
	for (unsigned p = 0; p < TSR_PANEL_COUNT; p++) {
		if (!has_panel(ctx, p))
			continue;
		put_panel(svg, ctx, p, f, top, 10 * height);
		top += 10 * height;
	}
	tsr_text_puts(svg, "</svg>\n");
}
