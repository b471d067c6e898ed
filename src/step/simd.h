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

TSR_ISA_DECLARE(tsr_matrix_fn, step_matrix)
TSR_ISA_DECLARE(tsr_moments_fn, step_block_moments)
TSR_ISA_DECLARE(tsr_weights_fn, step_weights)

#endif
