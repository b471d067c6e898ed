/* SPDX-License-Identifier: Apache-2.0 */
/* The charts and the page of a replay. */
#ifndef TSR_REPORT_REPLAY_CHART_H
#define TSR_REPORT_REPLAY_CHART_H

#include "report/charts/replay_curves.h"
#include "text/text.h"

/* An SVG file with a panel per curve: all tensors, and the worst tensor of each step. */
void tsr_replay_put_svg(const struct tsr_replay *r, struct tsr_text *svg);

/* A page with the chart, its values and tables, in one file. */
void tsr_replay_put_html(const struct tsr_replay *r, struct tsr_text *html);

/* How the panels are laid out. */
struct tsr_curves_layout {
	const char *id; /* of the svg element */
	int width; /* pixels */
	int columns; /* of panels */
};

/* The svg element; legible on light and on dark pages. */
void tsr_curves_put(const struct tsr_curves *c, const struct tsr_curves_layout *layout,
		    struct tsr_text *svg);

#endif
