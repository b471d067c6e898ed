/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of a learned codebook. */
#ifndef TSR_CHARTS_CODEBOOK_CHART_H
#define TSR_CHARTS_CODEBOOK_CHART_H

#include "report/charts/plot.h"
#include "tersor/learn.h"

/* The histogram of what it was learned from, with its entries below, and the entries by index. */
tsr_chart_put tsr_codebook_put;

#endif
