/* SPDX-License-Identifier: Apache-2.0 */
/* The charts and the page of a replay. */
#ifndef TSR_REPORT_REPLAY_CHART_H
#define TSR_REPORT_REPLAY_CHART_H

#include "report/charts/plot_lines.h"
#include "report/charts/replay_curves.h"
#include "text/text.h"

/* The svg element of struct tsr_curves; legible on light and on dark pages. */
tsr_chart_put tsr_curves_put;

/* A panel of a figure over the steps of a replay, and its thresholds. */
struct tsr_lines tsr_curve_lines(const struct tsr_replay *r, const struct tsr_curve_kind *kind,
				 const struct tsr_axis *y, const char *name);
void tsr_curve_put_limits(struct tsr_text *svg, const struct tsr_lines *l,
			  enum tsr_figure_name figure);

#endif
