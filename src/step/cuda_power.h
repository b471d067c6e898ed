/* SPDX-License-Identifier: Apache-2.0 */
/* Powers as a GPU computes them. */
#ifndef TSR_STEP_CUDA_POWER_H
#define TSR_STEP_CUDA_POWER_H

#include <stdint.h>

/*
 * What powf(@base, @n) gives on a GPU, for a base from 0 to below 1: not always the nearest number.  Below
 * 2^-126 it is 0 here, which makes no difference to what is subtracted from 1.  Thread-safe.
 */
float tsr_cuda_power(float base, uint64_t n);

#endif
