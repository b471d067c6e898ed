/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of one step of a comparison with a replay in FP32. */
#ifndef TSR_REPLAY_COMPARE_FP32_H
#define TSR_REPLAY_COMPARE_FP32_H

#include <stddef.h>

#include "tersor/measure.h"
#include "tersor/replay.h"

/* A run of elements of one parameter at one step; arrays of a part that is not kept are NULL. */
struct tsr_compare_run {
	size_t n;
	const float *before[TSR_PARTS]; /* the replayed state, decoded, before the step */
	const float *stepped[TSR_PARTS]; /* after the update, before it was encoded */
	const float *after[TSR_PARTS]; /* encoded and decoded again */
	const float *fp32_before; /* weights of the FP32 replay */
	const float *fp32_after[TSR_PARTS];
};

/* Sums of one parameter or of all, at one step.  Start from zeros; merge in a fixed order. */
struct tsr_compare {
	struct tsr_measure state[TSR_PARTS]; /* FP32 replay against the replayed state */
	struct tsr_measure quant[TSR_PARTS]; /* before against after encoding */
	struct tsr_measure update; /* what the step adds to the weights, before they are stored */
	struct tsr_measure update_quant; /* that against what storing them made of it */
	double norm[TSR_MEASURE_LANES]; /* squares of the replayed update */
	uint64_t stalled;
	uint64_t underflow;
};

/* Add a run.  Not thread-safe on one @c. */
void tsr_compare_add(struct tsr_compare *c, const struct tsr_compare_run *run);
void tsr_compare_merge(struct tsr_compare *into, const struct tsr_compare *from);

/* The figures; those of parts outside @kinds, a mask of enum tsr_kind, are NaN. */
struct tsr_replay_figures tsr_compare_figures(const struct tsr_compare *c, unsigned kinds);

#endif
