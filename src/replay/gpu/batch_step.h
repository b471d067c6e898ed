/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on a GPU, of state in any form. */
#ifndef TSR_REPLAY_BATCH_STEP_H
#define TSR_REPLAY_BATCH_STEP_H

#include "gpu/gpu_work.h"

/**
 * tsr_gpu_step() - Append a step of an optimizer on a tensor to a stream
 * @step:   as for tsr_step_apply(), with planes in device memory
 * @grad:   @n elements of step->grad_dtype in device memory
 * @n:      elements of the tensor, or of a run that begins at a multiple of tsr_step_align() (then
 *          planes, gradient and the codings' `first` are those of the run)
 * @report: in device memory, aligned to 8 bytes, added to; NULL is allowed
 *
 * The bits of tsr_step_apply().  One kernel does it for states that step_fused.cu lists, in groups of
 * their usual size, if the arrays are aligned to 16 bytes (all but the scales, which are to their
 * size); elements behind the last whole group, and every other state, pass through FP32 copies of up
 * to 2^24 elements of each slot, which the stream owns.
 *
 * Return: TSR_OK, or as gpu_work.h says; the state is undefined after a failure.
 */
enum tsr_status tsr_gpu_step(struct tsr_gpu_stream *stream, const struct tsr_step *step,
			     const void *grad, uint64_t n, struct tsr_step_report *report,
			     struct tsr_err *err);

/*
 * Decode all slots to arrays, but those that are their planes; momenta that are stored as ratios become
 * momenta by the variances that come back.
 */
enum tsr_status tsr_gpu_step_decode(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				    uint64_t n, float *const x[], struct tsr_err *err);

/**
 * tsr_gpu_step_compare() - Append a step and the same step in FP32, and how far the two are apart
 * @step, @report: as for tsr_gpu_step(); @report is not NULL
 * @fp32:   the state of the FP32 replay, in device memory; NULL where the rule keeps no such slot
 * @grad:   @n gradients in device memory; NULL: a step without them, which changes nothing
 * @run:    elements of a run of tsr_step_compare(): a multiple of tsr_step_align()
 * @sums:   in device memory; one run after the other is added, as tsr_compare_merge() does, but for
 *          `underflow`, which @report tells
 *
 * The bits of tsr_step_compare() on each run, in planes, @fp32 and @sums.  Takes up to 250 MiB of device
 * memory, which the stream owns.
 *
 * Return: TSR_OK, or as gpu_work.h says; state and sums are undefined after a failure.
 */
enum tsr_status tsr_gpu_step_compare(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				     float *const fp32[TSR_SLOTS], const void *grad, uint64_t n,
				     uint64_t run, struct tsr_compare *sums,
				     struct tsr_step_report *report, struct tsr_err *err);

#endif
