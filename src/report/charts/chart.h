/* SPDX-License-Identifier: Apache-2.0 */
/* What SVG charts are drawn with: scales, axes, paths, markers and labels. */
#ifndef TSR_REPORT_CHART_H
#define TSR_REPORT_CHART_H

#include <stdbool.h>

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

/* --- Scales ----------------------------------------------------------------------------------- */

/* Where values are drawn along an axis; either end may be the larger one. */
struct tsr_chart_scale {
	int from, to; /* coordinates */
	double low, high; /* the values there; if `log`, their decades */
	bool log;
};

/* The coordinate of a value, rounded; of one above 0 if the scale is logarithmic. */
int tsr_chart_at(const struct tsr_chart_scale *s, double value);

/* The coordinate of a decade, or of a whole number on a linear scale, rounded towards `from`. */
int tsr_chart_tick(const struct tsr_chart_scale *s, int tick);

/* --- Elements --------------------------------------------------------------------------------- */

/* The plot of a panel: where lines are drawn, and the x axis below them. */
struct tsr_chart_area {
	int left, right, top, bottom;
};

struct tsr_chart_head {
	const char *id, *class; /* of the svg element; no class if NULL */
	int width, height; /* pixels */
	const char *label; /* for screen readers */
	const char *style; /* with a class, of class "page" too: the background, else it is white */
};

/* The svg element up to its background; the caller closes it. */
void tsr_chart_open(struct tsr_text *svg, const struct tsr_chart_head *head);

/* A group for a panel, with attributes by which scripts find it; @more are further attributes. */
void tsr_chart_open_panel(struct tsr_text *svg, const char *name, const char *more,
			  const struct tsr_chart_area *area);

/* ' x="12.3"' */
void tsr_chart_put_attribute(struct tsr_text *svg, const char *name, int tenths);

void tsr_chart_put_line(struct tsr_text *svg, const char *class, int x1, int y1, int x2, int y2);

/* A text element; @text is not escaped.  The first leaves it open. */
void tsr_chart_open_label(struct tsr_text *svg, const char *class, int x, int y);
void tsr_chart_put_label(struct tsr_text *svg, const char *class, int x, int y, const char *text);

/* The end of an open label: a power with its exponent raised, in class "up". */
void tsr_chart_close_power(struct tsr_text *svg, int base, int exponent);

/* A grid line, and its label, which the caller closes, left of the plot. */
void tsr_chart_open_y_tick(struct tsr_text *svg, const struct tsr_chart_area *a, int y);
void tsr_chart_put_y_tick(struct tsr_text *svg, const struct tsr_chart_area *a, int y,
			  const char *text);

/* Shapes that differ without colour, in class "marker"; @shape counts modulo their number. */
void tsr_chart_put_marker(struct tsr_text *svg, int x, int y, unsigned shape);

/* The next point of a path's data: a line from the last one, or a move there. */
void tsr_chart_put_point(struct tsr_text *svg, bool line, int x, int y);

/* Behind a point that no line reaches: a dot. */
void tsr_chart_put_dot(struct tsr_text *svg);

/* The short line of a legend, around which @open and @close go behind the line and the marker. */
void tsr_chart_put_sample(struct tsr_text *svg, int x, int y, unsigned shape, const char *open,
			  const char *close);

#endif
