/* SPDX-License-Identifier: Apache-2.0 */
/* The chart and the page of 8-bit floats by granularity. */
#ifndef TSR_CHARTS_GRANULARITY_CHART_H
#define TSR_CHARTS_GRANULARITY_CHART_H

#include "audit/granularity_figures.h"
#include "text/text.h"

/* The svg element, @width pixels wide, with so many panels side by side. */
void tsr_granularity_chart_put(const struct tsr_granularity_figures *f, const char *id, int width,
			       int columns, struct tsr_text *svg);

/* "E4M3", by the index of a granularity. */
const char *tsr_fp8_title(unsigned granularity);

#endif
