/* SPDX-License-Identifier: Apache-2.0 */
/* The chart and the page of a sweep: mean relative error against exponent, BF16 above, FP16 below. */
#ifndef TSR_REPORT_SWEEP_CHART_H
#define TSR_REPORT_SWEEP_CHART_H

#include <stdbool.h>

#include "tersor/sweep.h"
#include "text/text.h"

/* An SVG file with a line per codec. */
void tsr_sweep_put_svg(const struct tsr_sweep *s, struct tsr_text *svg);

/* --- For pages ------------------------------------------------------------------------------ */

/* The layout of a chart, in pixels. */
struct tsr_sweep_chart {
	const struct tsr_sweep *sweep;
	const char *id; /* of the svg element */
	int width;
	int panel_height;
	bool legend; /* beside each panel */
	bool all; /* also the lines that a page shows on request */
};

/* The svg element. */
void tsr_sweep_chart_put(const struct tsr_sweep_chart *c, struct tsr_text *svg);

enum tsr_sweep_panel {
	TSR_PANEL_BF16,
	TSR_PANEL_FP16,
	TSR_PANEL_E5M2,
	TSR_PANEL_E4M3,
	TSR_PANEL_COUNT
};

/* The panel that shows this codec; TSR_PANEL_COUNT for none. */
enum tsr_sweep_panel tsr_sweep_panel_of(const struct tsr_codec *codec);

/* Its title; "" for TSR_PANEL_COUNT. */
const char *tsr_sweep_panel_name(enum tsr_sweep_panel panel);

/* Whether a codec's line is shown at first. */
bool tsr_sweep_chart_shows(const struct tsr_sweep *s, const struct tsr_codec *codec);

/* A short line in a codec's style, as an svg element: for the legend of a page. */
void tsr_sweep_chart_put_sample(const struct tsr_sweep *s, unsigned codec, struct tsr_text *svg);

#endif
