/* SPDX-License-Identifier: Apache-2.0 */
/* The chart of a learned codebook. */
#ifndef TSR_CHARTS_CODEBOOK_CHART_H
#define TSR_CHARTS_CODEBOOK_CHART_H

#include "tersor/learn.h"
#include "text/text.h"

/* The histogram of what it was learned from, with its entries below, and the entries by index. */
void tsr_codebook_put_svg(const struct tsr_learned *l, struct tsr_text *svg);

#endif
