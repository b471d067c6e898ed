/* SPDX-License-Identifier: Apache-2.0 */
/* A step on a state and the same step in FP32: what is summed of how far the two are apart. */
#ifndef TSR_STEP_STEP_COMPARE_H
#define TSR_STEP_STEP_COMPARE_H

#include "step/step.h"
#include "tersor/measure.h"

/* A run of elements of one parameter at one step; arrays of a slot that is not kept are NULL. */
struct tsr_compare_run {
	size_t n;
	float *before[TSR_SLOTS]; /* the replayed state, decoded, before the step */
	float *stepped[TSR_SLOTS]; /* after the update, before it was encoded */
	float *after[TSR_SLOTS]; /* encoded and decoded again */
	float *fp32_before; /* weights of the FP32 replay */
	float *fp32_after[TSR_SLOTS];
};

/* Sums of one parameter or of all, at one step.  Start from zeros; merge in a fixed order. */
struct tsr_compare {
	struct tsr_measure state[TSR_SLOTS]; /* FP32 replay against the replayed state */
	struct tsr_measure quant[TSR_SLOTS]; /* before against after encoding */
	struct tsr_measure update; /* what the step adds to the weights, before they are stored */
	struct tsr_measure update_quant; /* that against what storing them made of it */
	double norm[TSR_MEASURE_LANES]; /* squares of the replayed update */
	uint64_t stalled;
	uint64_t underflow;
};

/* Add a run.  Not thread-safe on one @c. */
void tsr_compare_add(struct tsr_compare *c, const struct tsr_compare_run *run);
void tsr_compare_merge(struct tsr_compare *into, const struct tsr_compare *from);

/* Groups of momentum and variance with a scale stored as 0. */
static inline uint64_t tsr_step_underflow(const struct tsr_step_report *report)
{
	return report->encode[TSR_SLOT_MOMENTUM].scale_underflow +
	       report->encode[TSR_SLOT_VARIANCE].scale_underflow;
}

/* FP32 arrays that tsr_step_compare() needs. */
#define TSR_COMPARE_ARRAYS (3 * TSR_SLOTS + 1)

/* The arrays of a run: those of the FP32 replay where they are, the others in @x, of @room elements each. */
struct tsr_compare_run tsr_compare_place(const struct tsr_step *at, float *const fp32[], size_t n,
					 float *x, size_t room);

/* A step like @like on FP32 arrays. */
struct tsr_step tsr_compare_step(const struct tsr_step *like,
				 const struct tsr_step_scalars *scalars, float *const x[]);

/*
 * Step @n elements: decode, update in FP32, encode and decode again, and the same in the replay in
 * FP32, whose state is @fp32.  The planes get the bits that tsr_step_apply() gives them.  Adds to @c
 * as one run.
 * @at:   a step whose planes begin at the run, at a multiple of tsr_step_align()
 * @grad: NULL: a step without a gradient, which changes nothing
 * @x:    TSR_COMPARE_ARRAYS arrays of @room elements, at least @n and a multiple of 16
 */
void tsr_step_compare(const struct tsr_step *at, float *const fp32[TSR_SLOTS], const void *grad,
		      size_t n, float *x, size_t room, struct tsr_compare *c,
		      struct tsr_step_report *report);

#endif
