/* SPDX-License-Identifier: Apache-2.0 */
/* Two runs that are compared step by step. */
#ifndef TSR_BISECT_COMPARING_H
#define TSR_BISECT_COMPARING_H

#include "bisect/sides.h"

/* Indices into the tables of A and B; SIZE_MAX: it has none. */
struct tsr_pair {
	size_t at[2];
};

struct tsr_comparing {
	struct tsr_bisect pub; /* first: what the caller gets */
	struct tsr_bisect *result; /* it */
	struct tsr_run_side side[2];
	struct tsr_pair *pairs; /* of tensors, as in the result */
	struct tsr_pair *steps; /* that both have */
	struct tsr_replay *replay; /* NULL: there was none */
};

/* What was compared at a step, and whether any of it differs. */
struct tsr_step_found {
	uint64_t step;
	bool gradients, states, gradients_differ, states_differ;
};

/* Note hyperparameters that differ: those of all steps, and learning rates of the step that is loaded. */
void tsr_compare_groups(struct tsr_comparing *c);
void tsr_compare_rates(struct tsr_comparing *c, uint64_t step);

/* The cause, if this step shows one; @last: the step that was compared before, or NULL. */
void tsr_judge_step(struct tsr_comparing *c, const struct tsr_step_found *found,
		    const struct tsr_step_found *last);

/* The cause if no step shows one. */
void tsr_judge_rest(struct tsr_comparing *c);

/* Replay from a checkpoint which of the runs has its results; nothing if @from is NULL. */
enum tsr_status tsr_replay_cause(struct tsr_comparing *c, const char *from,
				 const struct tsr_run *run, struct tsr_err *err);

/* The elements that differ in tensors that differ first at the step that shows the cause, which is loaded. */
enum tsr_status tsr_find_elements(struct tsr_comparing *c, const struct tsr_pair *step,
				  struct tsr_err *err);

#endif
