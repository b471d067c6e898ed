/* SPDX-License-Identifier: Apache-2.0 */
/* New states get a tensor each, and a place in what was saved around the tensors. */
#ifndef TSR_REPLAY_NEW_STATES_H
#define TSR_REPLAY_NEW_STATES_H

#include "names/optimizer_ids.h"
#include "replay/replaying.h"

/* New states, on their way into what was saved around the tensors. */
struct tsr_replay_adding {
	struct tsr_replaying *r;
	struct tsr_parameter *sample; /* its prefix ends in its name; NULL: none does */
	size_t head; /* length of what is before the name there */
	bool canonical; /* that name is without wrappers */
	struct tsr_optim optim; /* the first optimizer in the trees, once it was read */
	bool flat; /* the first tree is one mapping of tensors by name */
	bool placed; /* every parameter has what it needs of these */
};

/*
 * Decide before the first step where states go that the checkpoint does not have:
 * TSR_E_UNSUPPORTED if that is not clear.  Only needed for an output.
 */
enum tsr_status tsr_replay_plan_new_states(struct tsr_replaying *r);

/* Add tensors for these states, and for counters. */
enum tsr_status tsr_replay_add_new_states(struct tsr_replaying *r);

/*
 * Give each parameter without a mapping one in the state_dict() of the optimizer that is there,
 * under its number: as names there tell, --params, the groups of the recording, or the order of
 * the model.  TSR_E_UNSUPPORTED if none settles it.
 */
enum tsr_status tsr_replay_number_states(struct tsr_replay_adding *a);

/* Let param_groups have the lr of the last step, where they clearly are the recording's. */
enum tsr_status tsr_replay_write_lr(struct tsr_replay_adding *a);

/* The lr of the last step. */
double tsr_replay_last_lr(const struct tsr_replaying *r, size_t group);

#endif
