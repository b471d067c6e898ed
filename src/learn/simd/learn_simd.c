/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of learning blocks and codebooks. */
#include "learn/learn_loops.h"

#include "learn/histogram.h"
#include "learn/log_math.h"

void TSR_FOR_ISA(logs)(const float *restrict x, size_t n, int32_t *restrict logs)
{
	for (size_t i = 0; i < n; i++)
		logs[i] = tsr_log_fixed(x[i]);
}

void TSR_FOR_ISA(bins)(const float *restrict x, size_t n, float absmax, int32_t *restrict bins)
{
	for (size_t i = 0; i < n; i++) {
		const float at = (x[i] / absmax + 1.0f) * (TSR_HISTOGRAM_BINS / 2);

		bins[i] = (int32_t)(at < TSR_HISTOGRAM_BINS - 1 ? at : TSR_HISTOGRAM_BINS - 1);
	}
}
