/* SPDX-License-Identifier: Apache-2.0 */
/* The chart and the page of a sweep: mean relative error against exponent, BF16 above, FP16 below. */
#ifndef TSR_REPORT_SWEEP_CHART_H
#define TSR_REPORT_SWEEP_CHART_H

#include "report/charts/plot.h"
#include "tersor/sweep.h"

/* The svg element of struct tsr_sweep: a file has a legend, a page also the lines that it shows on request. */
tsr_chart_put tsr_sweep_chart_put;

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
