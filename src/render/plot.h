/* SPDX-License-Identifier: Apache-2.0 */
/* What charts and pages are made of: axes, paths, markers and labels. */
#ifndef TSR_RENDER_PLOT_H
#define TSR_RENDER_PLOT_H

#include <math.h>

#include "base/embed.h"
#include "text/text.h"

/*
 * Charts have the same bytes on every machine: coordinates are integers in tenths of a pixel, and
 * logarithms are computed here, as those of C libraries differ in the last bit.
 */

/* log10(v) of a finite v > 0. */
double tsr_chart_log10(double v);

/* @m * 10^@exponent. */
double tsr_chart_times_power(double m, int exponent);

/* The least of 1, 2, 5, 10 ... that is not below a value above 0. */
double tsr_chart_round_step(double v);

/* --- Axes ------------------------------------------------------------------------------------- */

/* Where values are drawn along an axis; either end may be the larger one. */
struct tsr_axis {
	int from, to; /* coordinates */
	double low, high; /* the values there; if `log`, their decades */
	bool log;
	int zero, infinity; /* where these are drawn, outside the decades */
	/* What was noted: finite values above 0, of which @least > @most says that there are none; others. */
	double least, most;
	bool any_zero, any_infinite;
};

/* Before the first value is noted; NaN is no value. */
#define TSR_AXIS ((struct tsr_axis){ .least = INFINITY, .most = -INFINITY })

void tsr_axis_note(struct tsr_axis *a, double value);

/* From one coordinate and value to others; of a logarithmic one the values are decades. */
static inline struct tsr_axis tsr_axis_of(int from, int to, double low, double high, bool log)
{
	return (struct tsr_axis){ .from = from, .to = to, .low = low, .high = high, .log = log };
}

/* From one coordinate to another, in decades; at the ends there is room for zero and infinity if any. */
void tsr_axis_fit(struct tsr_axis *a, int from, int to, int edge);

/* The coordinate of a value, rounded; on a linear axis anything but NaN. */
int tsr_axis_at(const struct tsr_axis *a, double value);

/* The coordinate of a decade, or of a whole number on a linear axis, rounded towards `from`. */
int tsr_axis_tick(const struct tsr_axis *a, int tick);

/* Every how many decades a label fits, if each takes @each. */
int tsr_axis_every(const struct tsr_axis *a, int each);

/* --- Elements --------------------------------------------------------------------------------- */

/* The plot of a panel: where lines are drawn, and the x axis below them. */
struct tsr_chart_area {
	int left, right, top, bottom;
};

/* Where a chart is drawn: on a page for wide and for narrow windows, or in a file of its own. */
struct tsr_chart_frame {
	const char *id; /* of the svg element */
	int width, columns; /* pixels; panels side by side */
	bool page;
};

/* What draws a chart there. */
typedef void tsr_chart_put(const void *ctx, const struct tsr_chart_frame *f, struct tsr_text *svg);

/*
 * The svg element up to its background, in pixels; the caller closes it.  @class: " few" if lines may be
 * dashed, as markers and dashes have room, or ""; @label: for screen readers.
 */
void tsr_chart_open(struct tsr_text *svg, const struct tsr_chart_frame *f, const char *class,
		    int height, const char *label);

/* A group for a panel, with attributes by which scripts find it; @more are further attributes. */
void tsr_chart_open_panel(struct tsr_text *svg, const char *name, const char *more,
			  const struct tsr_chart_area *area);

void tsr_chart_put_line(struct tsr_text *svg, const char *class, int x1, int y1, int x2, int y2);

/* A rectangle of a class, which may be NULL. */
void tsr_chart_put_rect(struct tsr_text *svg, const char *class, int x, int y, int width,
			int height);

/* A text element; @text is not escaped.  The first leaves it open. */
void tsr_chart_open_label(struct tsr_text *svg, const char *class, int x, int y);
void tsr_chart_put_label(struct tsr_text *svg, const char *class, int x, int y, const char *text);

/* The end of an open label: a power with its exponent raised, in class "up". */
void tsr_chart_close_power(struct tsr_text *svg, int base, int exponent);

/* A grid line, and its label, which the caller closes, left of the plot. */
void tsr_chart_open_y_tick(struct tsr_text *svg, const struct tsr_chart_area *a, int y);
void tsr_chart_put_y_tick(struct tsr_text *svg, const struct tsr_chart_area *a, int y,
			  const char *text);

/* Grid lines of a logarithmic x axis, every so many tenths, and their labels below. */
void tsr_chart_put_decades(struct tsr_text *svg, const struct tsr_axis *x, int top, int bottom,
			   int each);

/* An error as it stands in charts: "2.9e-5", "0", an infinity sign. */
void tsr_chart_put_error(double value, int digits, struct tsr_text *out);

/* Shapes that differ without colour, in class "marker"; @shape counts modulo their number. */
void tsr_chart_put_marker(struct tsr_text *svg, int x, int y, unsigned shape);

/* The next point of a path's data: a line from the last one, or a move there. */
void tsr_chart_put_point(struct tsr_text *svg, bool line, int x, int y);

/* Behind a point that no line reaches: a dot. */
void tsr_chart_put_dot(struct tsr_text *svg);

/* A line of a legend in the colours of @class, which is a short line with its marker and words. */
void tsr_chart_put_key(struct tsr_text *svg, int x, int y, const char *class, unsigned shape,
		       const char *words);

/* --- Heat maps -------------------------------------------------------------------------------- */

/* Classes of colour, "q0" to "q6", which change at powers of ten; what is nothing is in one more. */
#define TSR_CHART_CLASSES 7u

/* The class of a value, if the first holds those up to 10^@decade. */
unsigned tsr_chart_class(double value, int decade);

/* The legend: which colour is up to which power of ten, from @x on. */
void tsr_chart_put_classes(struct tsr_text *svg, int x, int y, int decade);

/* --- Panels of lines: axes, limits and paths ------------------------------------------------- */

/* The most places at which lines may be dashed: markers and dashes need room. */
#define TSR_LINES_DASHED 400

struct tsr_lines {
	const char *name; /* by which scripts find it */
	const char *title, *unit;
	struct tsr_axis y; /* begins as TSR_AXIS; all values are noted before the panel is opened */
	bool wide_log; /* logarithmic even for one decade */
	bool percent; /* labels are numbers */
	size_t n; /* places along the x axis: integers from @first on, or names */
	uint64_t first;
	const char *word; /* what the numbers are, or NULL */
	const char *(*name_of)(size_t place);
	size_t break_at; /* lines begin anew at this place; 0: nowhere */
	int head; /* room for keys between title and plot */
	/* Set when it is opened. */
	struct tsr_chart_area area;
	struct tsr_axis x;
	int nticks; /* of a linear y axis, besides 0 */
};

int tsr_lines_height(const struct tsr_lines *l);

/* The group of a panel with its title and axes, which the caller closes. */
void tsr_lines_open(struct tsr_text *svg, struct tsr_lines *l, int left, int top, int width);

/* A line through @values, one per place, in a group of a class, with markers where there are few. */
void tsr_lines_put(struct tsr_text *svg, const struct tsr_lines *l, const char *class,
		   const double *values, unsigned shape);

/* A threshold, if it is within a logarithmic axis. */
void tsr_lines_put_limit(struct tsr_text *svg, const struct tsr_lines *l, double value,
			 const char *text);

/* --- What pages of reports have in common: one HTML file that needs no network --------------- */

/*
 * Every page has page.css; one with values for its charts also has page.js.
 * Without its script a page still shows everything but the values under the pointer.
 */

/* Up to the first element of the body. */
void tsr_page_open(struct tsr_text *html, const char *title);

/* Two drawings of one chart, for wide and for narrow windows, and where values are shown. */
void tsr_page_put_charts(struct tsr_text *html, tsr_chart_put *put, const void *ctx);

/* The end; @json: the values that the script shows, NULL without one. */
void tsr_page_close(struct tsr_text *html, const struct tsr_text *json);

/*
 * Text from a file in an element or an attribute: made safe to show as by tsr_escape(), then with
 * references for the characters of markup.
 */
void tsr_html_put_text(struct tsr_text *html, const char *text);

#endif
