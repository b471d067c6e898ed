/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_REPLAY_FIGURES_H
#define TSR_REPLAY_FIGURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/replay.h"

/*
 * What reports, pages and tables find in a replay.  docs/replay-report.md defends the thresholds.
 */

/* An update whose error is as large as itself: not stepping at all would have been no worse. */
#define TSR_REPLAY_DIVERGED 1.0

/* An update that is 10% of its length off. */
#define TSR_REPLAY_DRIFTING 0.01

/* The share of weights that are stalled from which on it is worth a word. */
#define TSR_REPLAY_STALLED 0.1

/* Where a figure is worst. */
struct tsr_replay_worst {
	bool any; /* whether any step has the figure */
	size_t step, param; /* indices */
	double value;
};

/* Of all tensors and steps; the first of equals. */
struct tsr_replay_worst tsr_replay_worst(const struct tsr_replay *r, enum tsr_figure_name name);

/* Of all tensors at one step. */
struct tsr_replay_worst tsr_replay_worst_at(const struct tsr_replay *r, size_t step,
					    enum tsr_figure_name name);

/* Whether a step has figures. */
bool tsr_replay_has_figures(const struct tsr_replay *r, size_t step);

/* Whether a table of about @rows steps has this one: the first, the last, others evenly between. */
bool tsr_replay_in_sample(const struct tsr_replay *r, size_t step, size_t rows);

/* Elements of a parameter, or of all for SIZE_MAX; 0 if the source does not know them. */
uint64_t tsr_replay_numel(const struct tsr_replay *r, size_t param);

/* Groups with a scale that a parameter, or all for SIZE_MAX, has in its momentum and variance. */
uint64_t tsr_replay_ngroups(const struct tsr_replay *r, size_t param);

#endif
