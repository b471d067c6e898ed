/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CODEC_MEASURING_H
#define TSR_CODEC_MEASURING_H

/* Measuring: what fills a struct tsr_measure. */

#include <stddef.h>

#include "tersor/measure.h"

/* Add @n pairs.  The arrays may be unaligned and may be the same.  Not thread-safe on one @m. */
void tsr_measure_add(struct tsr_measure *m, const float *x, const float *y, size_t n);

/* Add what @from has seen, after what @into has. */
void tsr_measure_merge(struct tsr_measure *into, const struct tsr_measure *from);

/* What they found. */
struct tsr_measured tsr_measure_result(const struct tsr_measure *m);
struct tsr_update_measured tsr_update_measure_result(const struct tsr_update_measure *u);

#endif
