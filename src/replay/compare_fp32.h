/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of a replay with one in FP32: its figures. */
#ifndef TSR_REPLAY_COMPARE_FP32_H
#define TSR_REPLAY_COMPARE_FP32_H

#include "replay/window.h"
#include "step/step_compare.h"

/* The figures; those of slots outside @slots, a mask of 1 << enum tsr_slot, are NaN. */
struct tsr_replay_figures tsr_compare_figures(const struct tsr_compare *c, unsigned slots);

/* Sums over the tiles of a window, per step.  Start from zeros. */
struct tsr_replay_sums {
	struct tsr_compare param[TSR_REPLAY_WINDOW]; /* of the parameter being committed */
	struct tsr_compare total[TSR_REPLAY_WINDOW]; /* of all parameters */
};

/* Add the sums of a tile of @r at a step, in order. */
void tsr_replay_compare_commit(const struct tsr_replay_window *w, const struct tsr_replaying *r,
			       struct tsr_replay_sums *sums, unsigned step,
			       const struct tsr_tile *tile, const struct tsr_compare *compare);

/* The figures of all parameters of @r together, at the end of the window. */
void tsr_replay_compare_finish(const struct tsr_replay_window *w, const struct tsr_replaying *r,
			       struct tsr_replay_sums *sums);

#endif
