/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_GPU_STEP_KERNELS_H
#define TSR_GPU_STEP_KERNELS_H

/* Between step.cu, which can do any step in three passes, and step_fused.cu. */
#include "gpu/step.cuh"

/* Whether all parts are of those that have a kernel together. */
bool tsr_gpu_step_has_kernel(const struct tsr_step *step);

/*
 * Start the step of as many elements from the first on as one kernel takes: none if there is no
 * kernel or an array is not aligned, else all whole groups.  Returns how many.
 */
uint64_t tsr_gpu_step_fused(cudaStream_t stream, const struct tsr_step *step, enum step_rule rule,
			    const void *grad, uint64_t n, struct tsr_step_report *report);

#endif
