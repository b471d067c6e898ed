/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_STEP_SIMD_H
#define TSR_STEP_SIMD_H

#include "base/isa.h"
#include "step/step.h"

/* tsr_step_apply(), per SIMD level. */
typedef void tsr_step_fn(const struct tsr_step *step, const void *grad, uint64_t first, size_t n,
			 struct tsr_step_report *report);

#define X_DECLARE_STEP(isa) extern tsr_step_fn tsr_step_apply_##isa;
TSR_ISA_LIST(X_DECLARE_STEP)

#endif
