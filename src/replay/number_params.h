/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of parameters in the state_dict() of an optimizer that has no state of them. */
#ifndef TSR_REPLAY_NUMBER_PARAMS_H
#define TSR_REPLAY_NUMBER_PARAMS_H

#include "format/value.h"
#include "replay/replaying.h"

/* New states, on their way into what was saved around the tensors. */
struct tsr_replay_adding {
	struct tsr_replaying *r;
	struct tsr_value **dicts; /* per parameter: the mapping of its state in a tree, or NULL */
	const char **prefix; /* per parameter: of its keys there; NULL: the mapping is its own */
	size_t sample; /* a parameter whose prefix ends in its name, or SIZE_MAX */
	size_t head; /* length of what is before the name there */
	bool canonical; /* that name is without wrappers */
	size_t *param_of; /* per array: the parameter whose state it is, or SIZE_MAX */
	struct tsr_value *optimizer; /* the first state_dict() of an optimizer in the trees */
	size_t noptimizers;
	bool flat; /* the first tree is one mapping of tensors by name */
	bool placed; /* every parameter has what it needs of these */
	bool failed; /* out of memory meanwhile */
};

/*
 * Give each parameter without a mapping one in the state_dict() of the stored optimizer, under its
 * number, which is found from the names there, the params given, the groups of the recording, or the
 * order of the model.  TSR_E_UNSUPPORTED if none settles it.
 */
enum tsr_status tsr_replay_number_states(struct tsr_replay_adding *a);

/* Write the lr of the last step into param_groups, if they clearly are the recording's. */
enum tsr_status tsr_replay_write_lr(struct tsr_replay_adding *a);

/* The lr of the last step. */
double tsr_replay_last_lr(const struct tsr_replaying *r, size_t group);

#endif
