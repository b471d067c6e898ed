/* SPDX-License-Identifier: Apache-2.0 */
/* Panels of lines: axes, limits and paths. */
#ifndef TSR_REPORT_PLOT_LINES_H
#define TSR_REPORT_PLOT_LINES_H

#include "report/charts/plot.h"

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

#endif
