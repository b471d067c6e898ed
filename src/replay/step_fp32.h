/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a comparison: the replay in FP32 beside the one that is asked for. */
#ifndef TSR_REPLAY_STEP_FP32_H
#define TSR_REPLAY_STEP_FP32_H

#include "replay/compare_fp32.h"
#include "replay/window.h"

/* FP32 arrays of r->longest elements that comparing a tile needs; the second is the gradient's. */
#define TSR_REPLAY_COMPARE_ARRAYS (3 * TSR_PARTS + 2)

/* Sums over the tiles of a window, per step.  Start from zeros. */
struct tsr_replay_sums {
	struct tsr_compare param[TSR_REPLAY_WINDOW]; /* of the parameter being committed */
	struct tsr_compare total[TSR_REPLAY_WINDOW];
	bool any[TSR_REPLAY_WINDOW]; /* whether total was begun */
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

/* Add up what a tile had at a step, in order. */
void tsr_replay_compare_commit(const struct tsr_replay_window *w, struct tsr_replay_sums *sums,
			       unsigned step, const struct tsr_tile *tile,
			       const struct tsr_compare *compare);

/* The figures of all parameters together, at the end of the window. */
void tsr_replay_compare_finish(const struct tsr_replay_window *w, struct tsr_replay_sums *sums);

#endif
