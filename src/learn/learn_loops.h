/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of learning blocks and codebooks, each once per SIMD level. */
#ifndef TSR_LEARN_LEARN_LOOPS_H
#define TSR_LEARN_LEARN_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"

/* tsr_log_fixed() of @n elements. */
typedef void tsr_logs_fn(const float *x, size_t n, int32_t *logs);
TSR_ISA_DECLARE(tsr_logs_fn, logs)

/* The bins of @n values divided by @absmax, which none of them is above. */
typedef void tsr_bins_fn(const float *x, size_t n, float absmax, int32_t *bins);
TSR_ISA_DECLARE(tsr_bins_fn, bins)

#endif
