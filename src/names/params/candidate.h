/* SPDX-License-Identifier: Apache-2.0 */
/* What the name of a tensor says of it, until its kind and its parameter are known. */
#ifndef TSR_NAMES_CANDIDATE_H
#define TSR_NAMES_CANDIDATE_H

#include "ckpt/checkpoint_model.h"
#include "names/roles.h"

/* A tensor on the way to its kind and its parameter. */
struct tsr_candidate {
	struct tsr_tensor *t;
	size_t wrapper; /* bytes in front of its name, before the optimizer's or the model's key */
	const char
		*base; /* of a state: the name of its weight, as its own name has it; else NULL */
	const char *canonical; /* base or name without wrappers and leading keys of the model */
	size_t step; /* of a chain, of which each has states: bytes of the name up to the state's; or 0 */
	enum tsr_role role;
	bool weak;
	bool settled; /* by a rule of the user */
	bool optimizer; /* under a root such as "optimizer.", or its place says so */
	bool buffer; /* what a model keeps besides its parameters */
	bool factored; /* a state that has not the shape of its weight */
	bool param; /* known to be a weight, though it has no dimensions */
	struct tsr_candidate *weight;
	size_t parameter; /* of a state: its entry in the table */
};

/* Whether it is a momentum or a variance, and no rule of the user says what it is. */
static inline bool tsr_candidate_is_state(const struct tsr_candidate *k)
{
	return !k->settled && (k->role == TSR_ROLE_MOMENTUM || k->role == TSR_ROLE_VARIANCE ||
			       k->role == TSR_ROLE_MAX_VARIANCE);
}

#endif
