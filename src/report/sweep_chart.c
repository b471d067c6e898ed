/* SPDX-License-Identifier: Apache-2.0 */
/* The figure of a sweep.  Coordinates are integers in tenths of a pixel. */
#include "report/sweep_chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/markup.h"
#include "report/sweep_report.h"

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
};

enum tsr_figure_panel tsr_figure_panel_of(const struct tsr_codec *codec)
{
	unsigned p = 0;

	while (p < TSR_PANEL_COUNT && panels[p].dtype != codec->planes[0].dtype)
		p++;
	return (enum tsr_figure_panel)p;
}

/* Members of a family beyond which a drawing shows a selection. */
#define FAMILY_SHOWN 3

bool tsr_figure_shows(const struct tsr_sweep *s, const struct tsr_codec *codec)
{
	unsigned relatives = 0;

	if (tsr_figure_panel_of(codec) == TSR_PANEL_COUNT)
		return false;
	if (!codec->family)
		return true;
	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_codec *c = s->results[i].codec;

		relatives += c->family && strcmp(c->family, codec->family) == 0;
		/* Random rounding is undone: the line would be that of the truncated split. */
		if (codec->stochastic && c->extra_bits == codec->extra_bits && !c->stochastic &&
		    c->planes[0].dtype == codec->planes[0].dtype)
			return false;
	}
	return relatives <= FAMILY_SHOWN || codec->extra_bits == 4 || codec->extra_bits == 8 ||
	       codec->extra_bits == 12;
}

/* --- Styles: told apart without colour, too --------------------------------------------------- */

/* Okabe and Ito's palette, with a grey for the yellow. */
static const char *const colours[] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
				       "#000000", "#e69f00", "#56b4e9", "#777777" };
static const char *const dashes[] = { "", "7 3", "2 2", "9 3 2 3", "", "5 2", "12 4", "1 3" };

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))
#define NSTYLES COUNT_OF(colours)

/*
 * Whether two codecs do the same with another narrow format: "bf16+ulp8" and "fp16+ulp8",
 * "bf16+bf16" and "fp16+fp16".  They are drawn alike.
 */
static bool alike(const struct tsr_codec *a, const struct tsr_codec *b)
{
	const char *a_rest = strchr(a->name, '+'), *b_rest = strchr(b->name, '+');
	const bool a_twice = a_rest && strncmp(a->name, a_rest + 1, strlen(a_rest + 1)) == 0;
	const bool b_twice = b_rest && strncmp(b->name, b_rest + 1, strlen(b_rest + 1)) == 0;

	if (!a_rest || !b_rest)
		return !a_rest && !b_rest;
	return (a_twice && b_twice) || strcmp(a_rest, b_rest) == 0;
}

/* The place of a codec among the sorts that are shown, or among the others. */
static unsigned style_of(const struct tsr_sweep *s, unsigned codec)
{
	const struct tsr_codec *c = s->results[codec].codec;
	const bool shown = tsr_figure_shows(s, c);
	unsigned n = 0;

	for (unsigned i = 0; i < s->ncodecs; i++) {
		const struct tsr_codec *other = s->results[i].codec;
		bool first = tsr_figure_shows(s, other) == shown &&
			     tsr_figure_panel_of(other) != TSR_PANEL_COUNT;

		for (unsigned j = 0; j < i && first; j++)
			first = !alike(s->results[j].codec, other) ||
				tsr_figure_panel_of(s->results[j].codec) == TSR_PANEL_COUNT;
		if (alike(c, other))
			return n;
		n += first;
	}
	return n;
}

static void put_style(struct tsr_text *svg, unsigned style)
{
	const unsigned i = style % NSTYLES;

	tsr_text_printf(svg, " stroke=\"%s\"", colours[i]);
	if (dashes[i][0])
		tsr_text_printf(svg, " stroke-dasharray=\"%s\"", dashes[i]);
}

/* --- Coordinates ------------------------------------------------------------------------------ */

struct area {
	int left, right, top, bottom; /* of the plot, in tenths of a pixel */
	int zero; /* where an error of 0 is drawn, below the bottom */
	int decades; /* the bottom is 10^-decades, the top 1 */
	const struct panel *panel;
};

static int x_of(const struct area *a, int exponent)
{
	const int span = a->panel->last - a->panel->first;

	return a->left + (exponent - a->panel->first) * (a->right - a->left) / span;
}

static int y_of(const struct area *a, double error)
{
	const double share = error > 0 ? -tsr_svg_log10(error) / a->decades : 0;

	if (!(error > 0))
		return a->zero;
	if (share <= 0)
		return a->top;
	return share >= 1 ? a->bottom : a->top + (int)(share * (a->bottom - a->top) + 0.5);
}

/* --- Axes ------------------------------------------------------------------------------------- */

static void put_mark(struct tsr_text *svg, const struct area *a, const struct mark *m)
{
	const int from = x_of(a, m->from), to = x_of(a, m->to);

	if (!m->text)
		return;
	tsr_text_puts(svg, "<rect class=\"mark\"");
	tsr_svg_put_attribute(svg, "x", from);
	tsr_svg_put_attribute(svg, "y", a->top);
	tsr_svg_put_attribute(svg, "width", to - from);
	tsr_svg_put_attribute(svg, "height", a->zero + 80 - a->top);
	tsr_text_puts(svg, "/>\n");
	tsr_svg_put_segment(svg, "edge", from, a->top, from, a->zero + 80);
	tsr_svg_put_segment(svg, "edge", to, a->top, to, a->zero + 80);
	if (to - from > 700)
		tsr_svg_put_label(svg, "note mid", (from + to) / 2, a->top + 150, m->text);
	else if (from > a->left + (a->right - a->left) / 2)
		tsr_svg_put_label(svg, "note end", from - 50, a->top + 150, m->text);
	else
		tsr_svg_put_label(svg, "note", to + 50, a->top + 150, m->text);
}

static void put_axes(struct tsr_text *svg, const struct area *a)
{
	const struct panel *p = a->panel;

	put_mark(svg, a, &p->subnormal);
	put_mark(svg, a, &p->other);
	for (int d = 0; d <= a->decades; d++) {
		const int y = a->top + d * (a->bottom - a->top) / a->decades;

		tsr_svg_put_segment(svg, "grid", a->left, y, a->right, y);
		if (d % 2 == 0)
			tsr_svg_put_power(svg, "tick end", a->left - 60, y + 40, 10, -d);
	}
	tsr_svg_put_segment(svg, "grid", a->left, a->zero, a->right, a->zero);
	tsr_svg_put_label(svg, "tick end", a->left - 60, a->zero + 40, "0");
	tsr_svg_put_segment(svg, "axis", a->left, a->zero + 80, a->right, a->zero + 80);
	for (unsigned i = 0; !i || p->ticks[i] != p->ticks[i - 1]; i++) {
		const int x = x_of(a, p->ticks[i]);

		tsr_svg_put_segment(svg, "axis", x, a->zero + 80, x, a->zero + 130);
		tsr_svg_put_power(svg, "tick mid", x, a->zero + 270, 2, p->ticks[i]);
	}
	tsr_svg_put_label(svg, "title", a->left, a->top - 100, p->title);
}

/* --- Lines ------------------------------------------------------------------------------------ */

/* The row of an exponent if there is something to draw: NULL where nothing was compared. */
static const struct tsr_sweep_row *row_at(const struct tsr_sweep_result *r, int exponent)
{
	const int field = exponent + 127;
	const struct tsr_sweep_row *row = &r->rows[field >= 0 && field < 255 ? field : 255];

	return row->compared ? row : NULL;
}

/* The path through the means; points in the middle of a level stretch are left out. */
static void put_path(struct tsr_text *svg, const struct area *a, const struct tsr_sweep_result *r)
{
	bool pen = false;

	tsr_text_puts(svg, "<path fill=\"none\" d=\"");
	for (int e = a->panel->first; e <= a->panel->last; e++) {
		const struct tsr_sweep_row *row = row_at(r, e), *before = row_at(r, e - 1);
		const struct tsr_sweep_row *after = row_at(r, e + 1);
		const int y = row ? y_of(a, tsr_sweep_row_mean(row)) : 0;

		if (row && pen && before && after && e < a->panel->last &&
		    y_of(a, tsr_sweep_row_mean(before)) == y &&
		    y_of(a, tsr_sweep_row_mean(after)) == y)
			continue;
		if (row) {
			tsr_text_puts(svg, pen ? "L" : "M");
			tsr_svg_put_tenths(svg, x_of(a, e));
			tsr_text_puts(svg, " ");
			tsr_svg_put_tenths(svg, y);
			/* A point alone is a dot. */
			if (!pen && !after)
				tsr_text_puts(svg, "h0.1");
		}
		pen = row != NULL;
	}
	tsr_text_puts(svg, "\"/>\n");
}

/* Markers of different lines stand at different exponents; a short line has one at its start. */
static void put_markers(struct tsr_text *svg, const struct area *a,
			const struct tsr_sweep_result *r, unsigned style)
{
	const int span = a->panel->last - a->panel->first, step = span / 6;
	int next = a->panel->first + 1 + (int)(style % NSTYLES) * step / (int)NSTYLES;
	bool none = true;

	for (int e = next; e <= a->panel->last; e += step)
		none = none && !row_at(r, e);
	for (int e = a->panel->first; e <= a->panel->last; e++) {
		const struct tsr_sweep_row *row = row_at(r, e);

		if (row && (none || e == next)) {
			tsr_svg_put_marker(svg, x_of(a, e), y_of(a, tsr_sweep_row_mean(row)),
					   style);
			none = false;
		}
		next += e == next ? step : 0;
	}
}

static void put_line(struct tsr_text *svg, const struct tsr_figure *f, const struct area *a,
		     unsigned codec)
{
	const struct tsr_sweep_result *r = &f->sweep->results[codec];
	const unsigned style = style_of(f->sweep, codec);

	tsr_text_printf(svg, "<g class=\"line%s\" data-codec=\"%s\"",
			tsr_figure_shows(f->sweep, r->codec) ? "" : " off", r->codec->name);
	put_style(svg, style);
	tsr_text_puts(svg, ">\n");
	put_path(svg, a, r);
	tsr_text_puts(svg, "<g stroke-dasharray=\"none\">\n");
	put_markers(svg, a, r, style);
	tsr_text_puts(svg, "</g></g>\n");
}

static void put_sample(struct tsr_text *svg, int x, int y, unsigned style)
{
	tsr_text_puts(svg, "<g class=\"sample\"");
	put_style(svg, style);
	tsr_text_puts(svg, "><path fill=\"none\" d=\"M");
	tsr_svg_put_tenths(svg, x);
	tsr_text_puts(svg, " ");
	tsr_svg_put_tenths(svg, y);
	tsr_text_puts(svg, "h34\"/><g stroke-dasharray=\"none\">");
	tsr_svg_put_marker(svg, x + 170, y, style);
	tsr_text_puts(svg, "</g></g>\n");
}

void tsr_figure_put_sample(const struct tsr_sweep *s, unsigned codec, struct tsr_text *svg)
{
	tsr_text_puts(svg, "<svg class=\"sample\" width=\"36\" height=\"12\" viewBox=\"0 0 36 12\" "
			   "aria-hidden=\"true\">");
	put_sample(svg, 10, 60, style_of(s, codec));
	tsr_text_puts(svg, "</svg>");
}

static void put_legend(struct tsr_text *svg, const struct tsr_figure *f, const struct area *a)
{
	int y = a->top + 60;

	for (unsigned i = 0; i < f->sweep->ncodecs; i++) {
		const struct tsr_codec *c = f->sweep->results[i].codec;

		if (!tsr_figure_shows(f->sweep, c) || &panels[tsr_figure_panel_of(c)] != a->panel)
			continue;
		put_sample(svg, a->right + 200, y, style_of(f->sweep, i));
		tsr_svg_put_label(svg, "key", a->right + 610, y + 40, c->name);
		y += 190;
	}
}

/* --- The whole -------------------------------------------------------------------------------- */

/* How many decades the least error that is drawn goes down. */
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
	while (decades < 16 && -tsr_svg_log10(least) > decades)
		decades++;
	return decades + decades % 2;
}

static bool has_panel(const struct tsr_figure *f, unsigned panel)
{
	for (unsigned i = 0; i < f->sweep->ncodecs; i++) {
		if (tsr_figure_panel_of(f->sweep->results[i].codec) == panel)
			return true;
	}
	return false;
}

static void put_panel(struct tsr_text *svg, const struct tsr_figure *f, unsigned panel, int top)
{
	const int height = 10 * f->panel_height;
	const struct area a = { .left = 520,
				.right = 10 * f->width - (f->legend ? 1900 : 160),
				.top = top + 320,
				.bottom = top + height - 750,
				.zero = top + height - 600,
				.decades = decades_of(f->sweep),
				.panel = &panels[panel] };

	tsr_text_printf(svg,
			"<g class=\"panel\" data-panel=\"%s\" data-first=\"%d\" data-last=\"%d\"",
			panels[panel].title, panels[panel].first, panels[panel].last);
	tsr_svg_put_attribute(svg, "data-left", a.left);
	tsr_svg_put_attribute(svg, "data-right", a.right);
	tsr_svg_put_attribute(svg, "data-top", a.top);
	tsr_svg_put_attribute(svg, "data-bottom", a.zero + 80);
	tsr_text_puts(svg, ">\n");
	put_axes(svg, &a);
	for (unsigned i = 0; i < f->sweep->ncodecs; i++) {
		const struct tsr_codec *c = f->sweep->results[i].codec;

		if (tsr_figure_panel_of(c) == panel && (f->all || tsr_figure_shows(f->sweep, c)))
			put_line(svg, f, &a, i);
	}
	if (f->legend)
		put_legend(svg, f, &a);
	tsr_svg_put_label(svg, "name mid", (a.left + a.right) / 2, a.zero + 480,
			  "|x|, from this power of two to the next");
	tsr_text_puts(svg, "</g>\n");
}

static const char style[] =
	"text{font:12px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif;fill:#222}"
	".title{font-weight:600;font-size:14px}.tick,.note{fill:#444;font-size:11px}"
	".name{fill:#444}.up{font-size:8px}.mid{text-anchor:middle}.end{text-anchor:end}"
	".grid{stroke:#e3e3e3}.axis{stroke:#444}.edge{stroke:#777;stroke-dasharray:1 3}"
	".mark{fill:#f4f1e8}.line,.sample{stroke-width:1.8;stroke-linejoin:round;"
	"stroke-linecap:round}.marker{fill:#fff;stroke-width:1.4}.off{display:none}";

void tsr_figure_put(const struct tsr_figure *f, struct tsr_text *svg)
{
	int top = 140;

	tsr_text_printf(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"%s\" ", f->id);
	for (unsigned p = 0; p < TSR_PANEL_COUNT; p++)
		top += has_panel(f, p) ? 10 * f->panel_height : 0;
	tsr_text_printf(
		svg,
		"width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\" "
		"aria-label=\"Mean relative error against exponent\">\n"
		"<style>%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		f->width, top / 10, f->width, top / 10, style);
	tsr_svg_put_label(svg, "name", 60, 160, "mean relative error |x \xe2\x88\x92 y| / |x|");
	top = 140;
	for (unsigned p = 0; p < TSR_PANEL_COUNT; p++) {
		if (!has_panel(f, p))
			continue;
		put_panel(svg, f, p, top);
		top += 10 * f->panel_height;
	}
	tsr_text_puts(svg, "</svg>\n");
}

void tsr_sweep_put_svg(const struct tsr_sweep *s, struct tsr_text *svg)
{
	const struct tsr_figure f = {
		.sweep = s, .id = "sweep", .width = 960, .panel_height = 360, .legend = true
	};

	tsr_figure_put(&f, svg);
}
