/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of a replay with one in FP32: its steps, sums and figures. */
#ifndef TSR_REPLAY_COMPARE_FP32_H
#define TSR_REPLAY_COMPARE_FP32_H

#include "replay/window.h"
#include "tersor/measure.h"

/* A run of elements of one parameter at one step; arrays of a part that is not kept are NULL. */
struct tsr_compare_run {
	size_t n;
	float *before[TSR_PARTS]; /* the replayed state, decoded, before the step */
	float *stepped[TSR_PARTS]; /* after the update, before it was encoded */
	float *after[TSR_PARTS]; /* encoded and decoded again */
	float *fp32_before; /* weights of the FP32 replay */
	float *fp32_after[TSR_PARTS];
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

/* FP32 arrays of r->longest elements that comparing a tile needs; the second is the gradient's. */
#define TSR_REPLAY_COMPARE_ARRAYS (3 * TSR_PARTS + 2)

/* Sums over the tiles of a window, per step.  Start from zeros. */
struct tsr_replay_sums {
	struct tsr_compare param[TSR_REPLAY_WINDOW]; /* of the parameter being committed */
	struct tsr_compare total[TSR_REPLAY_WINDOW]; /* of all parameters */
};

/*
 * Step a tile: decode, update in FP32, encode and decode again, and the same in the replay in FP32.
 * The planes get the bits that tsr_step_apply() gives them.  @at begins at the tile; @x are all the
 * arrays, of which the second has the gradient.
 */
void tsr_replay_compare_step(const struct tsr_replaying *r, const struct tsr_tile *tile,
			     const struct tsr_step *at, float *x, struct tsr_compare *ret,
			     struct tsr_step_report *report);

/* The same for a step without a gradient. */
void tsr_replay_compare_idle(const struct tsr_replaying *r, const struct tsr_tile *tile, float *x,
			     struct tsr_compare *ret);

/* Add the sums of a tile of @r at a step, in order. */
void tsr_replay_compare_commit(const struct tsr_replay_window *w, const struct tsr_replaying *r,
			       struct tsr_replay_sums *sums, unsigned step,
			       const struct tsr_tile *tile, const struct tsr_compare *compare);

/* The figures of all parameters of @r together, at the end of the window. */
void tsr_replay_compare_finish(const struct tsr_replay_window *w, const struct tsr_replaying *r,
			       struct tsr_replay_sums *sums);

#endif
