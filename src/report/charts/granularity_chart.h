/* SPDX-License-Identifier: Apache-2.0 */
/* The chart and the page of 8-bit floats by granularity. */
#ifndef TSR_CHARTS_GRANULARITY_CHART_H
#define TSR_CHARTS_GRANULARITY_CHART_H

#include "audit/granularity_figures.h"
#include "report/charts/plot.h"

/* The svg element of struct tsr_granularity_figures. */
tsr_chart_put tsr_granularity_chart_put;

/* "E4M3", by the index of a granularity. */
const char *tsr_fp8_title(unsigned granularity);

#endif
