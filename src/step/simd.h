/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of steps, each once per SIMD level. */
#ifndef TSR_STEP_SIMD_H
#define TSR_STEP_SIMD_H

#include "base/isa.h"
#include "step/step.h"

/* tsr_step_apply(), per SIMD level. */
typedef void tsr_step_fn(const struct tsr_step *step, const void *grad, uint64_t first, size_t n,
			 struct tsr_step_report *report);

TSR_ISA_DECLARE(tsr_step_fn, step_apply)

/* tsr_step_block_moments() and tsr_step_weights(), per SIMD level. */
typedef void tsr_moments_fn(const struct tsr_step *step, const float *g, size_t n, float *m,
			    float *v);
typedef void tsr_weights_fn(const struct tsr_step *step, const float *m, const float *v, size_t n,
			    float *w);

/* tsr_step_matrix(), per SIMD level. */
typedef void tsr_matrix_fn(const struct tsr_step *step, const float *g, const float *m, float *w);

/* A step of SOAP on FP32 arrays; see tsr_step_turn(). */
typedef void tsr_soap_fn(const struct tsr_step *step, const float *g, float *const slot[]);

TSR_ISA_DECLARE(tsr_soap_fn, step_soap)

/* tsr_orthogonalize(), per SIMD level. */
typedef void tsr_orthogonal_fn(float *x, size_t rows, size_t columns, float *work);

TSR_ISA_DECLARE(tsr_orthogonal_fn, step_orthogonalize)

/* The sum of squares, in pieces of TSR_MEAN_PIECE as the encoder of means adds. */
static inline double tsr_step_sum_of_squares(const float *x, size_t n)
{
	double sum = 0;

	for (size_t first = 0; first < n; first += TSR_MEAN_PIECE) {
		const size_t left = n - first;
		const size_t end = first + (left < TSR_MEAN_PIECE ? left : TSR_MEAN_PIECE);
		double piece = 0;

		for (size_t i = first; i < end; i++)
			piece += tsr_step_square(x[i]);
		sum += piece;
	}
	return sum;
}

TSR_ISA_DECLARE(tsr_matrix_fn, step_matrix)
TSR_ISA_DECLARE(tsr_moments_fn, step_block_moments)
TSR_ISA_DECLARE(tsr_weights_fn, step_weights)

#endif
