/* SPDX-License-Identifier: Apache-2.0 */
/* The chart and the page of 8-bit floats by granularity. */
#ifndef TSR_CHARTS_GRANULARITY_CHART_H
#define TSR_CHARTS_GRANULARITY_CHART_H

#include "report/audit/granularity_figures.h"
#include "text/text.h"

/* An SVG file: for each format the median and the largest error of a tensor by granularity. */
void tsr_granularity_put_svg(const struct tsr_granularity_figures *f, struct tsr_text *svg);

/* A page with the verdict, that chart, its values and the tensors, in one file. */
void tsr_granularity_put_html(const struct tsr_granularities *g,
			      const struct tsr_granularity_figures *f, struct tsr_text *html);

/* The svg element, @width pixels wide, with so many panels side by side. */
void tsr_granularity_chart_put(const struct tsr_granularity_figures *f, const char *id, int width,
			       int columns, struct tsr_text *svg);

#endif
