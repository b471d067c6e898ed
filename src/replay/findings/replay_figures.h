/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a replay: thresholds, and where figures are worst. */
#ifndef TSR_REPLAY_FIGURES_H
#define TSR_REPLAY_FIGURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/replay.h"

/* docs/replay.md, "Figures of a report", gives the reasons for the thresholds. */

/* An update whose error is as large as itself: not stepping would have been no worse. */
#define TSR_REPLAY_DIVERGED 1.0

/* The share of stalled weights from which it is reported. */
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

/* The first step with the largest total of a figure, if that is above 0; else SIZE_MAX. */
size_t tsr_replay_worst_step(const struct tsr_replay *r, enum tsr_figure_name name);

/* The largest error of a parameter at any step; NaN if it has none. */
double tsr_replay_largest(const struct tsr_replay *r, size_t param, enum tsr_figure_name name);

/* The least and the largest learning rate of any group and step; false if none is known. */
bool tsr_replay_lr_range(const struct tsr_replay *r, double *least_ret, double *most_ret);

/* Whether a group has this hyperparameter, and the optimizer uses it; not the learning rate. */
bool tsr_replay_has_hyper(const struct tsr_replay *r, size_t group, enum tsr_hyper_name name);

/* Whether a step has figures. */
bool tsr_replay_has_figures(const struct tsr_replay *r, size_t step);

/* Whether a table of about @rows steps shows this one: the first, the last, evenly spaced ones. */
bool tsr_replay_in_sample(const struct tsr_replay *r, size_t step, size_t rows);

/* Elements of a parameter, or of all for SIZE_MAX; 0 if the source does not have it. */
uint64_t tsr_replay_numel(const struct tsr_replay *r, size_t param);

/* Groups in the momentum and variance of a parameter, or of all for SIZE_MAX. */
uint64_t tsr_replay_ngroups(const struct tsr_replay *r, size_t param);

/* Bytes per parameter that the state takes, without those of the comparison. */
double tsr_replay_state_bytes(const struct tsr_replay *r);

/* The last step that was compared; SIZE_MAX: none. */
size_t tsr_replay_last_compared(const struct tsr_replay *r);

#endif
