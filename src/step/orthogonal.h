/* SPDX-License-Identifier: Apache-2.0 */
/* How far errors of Muon's momentum move its update, which is made nearly orthogonal from it. */
#ifndef TSR_STEP_ORTHOGONAL_H
#define TSR_STEP_ORTHOGONAL_H

#include <stddef.h>

#include "tersor/measure.h"

/*
 * Make @x, of @rows x @columns, nearly orthogonal by five rounds of Newton and Schulz in FP32; a tall one
 * comes back transposed.  Of zeros it leaves zeros.  @work: tsr_orthogonal_work() floats.  Same bits on every
 * SIMD level.
 */
void tsr_orthogonalize(float *x, size_t rows, size_t columns, float *work);
size_t tsr_orthogonal_work(size_t rows, size_t columns);

/* The multiplications that takes, which grow with the smaller side. */
double tsr_orthogonal_cost(double rows, double columns);

/* Add to @u how far @after, an update made so, is from @before; no later step is looked at. */
void tsr_orthogonal_measure_add(struct tsr_update_measure *u, const float *before,
				const float *after, size_t n);

#endif
