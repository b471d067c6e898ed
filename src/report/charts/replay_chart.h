/* SPDX-License-Identifier: Apache-2.0 */
/* The charts and the page of a replay. */
#ifndef TSR_REPORT_REPLAY_CHART_H
#define TSR_REPORT_REPLAY_CHART_H

#include "report/charts/plot_lines.h"
#include "report/charts/replay_curves.h"
#include "text/text.h"

/* How the panels are laid out. */
struct tsr_curves_layout {
	const char *id; /* of the svg element */
	int width; /* pixels */
	int columns; /* of panels */
};

/* The svg element; legible on light and on dark pages. */
void tsr_curves_put(const struct tsr_curves *c, const struct tsr_curves_layout *layout,
		    struct tsr_text *svg);

/* A panel of a figure over the steps of a replay, and its thresholds. */
struct tsr_lines tsr_curve_lines(const struct tsr_replay *r, const struct tsr_curve_kind *kind,
				 const struct tsr_axis *y, const char *name);
void tsr_curve_put_limits(struct tsr_text *svg, const struct tsr_lines *l,
			  enum tsr_figure_name figure);

#endif
