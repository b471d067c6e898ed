/* SPDX-License-Identifier: Apache-2.0 */
/* What each tensor is to its parameter. */
#ifndef TSR_NAMES_ROLES_H
#define TSR_NAMES_ROLES_H

#include "base/arena.h"
#include "tersor/names.h"

/* What a tensor is to a parameter, finer than its kind. */
enum tsr_role {
	TSR_ROLE_NONE, /* a weight, or nothing to any */
	TSR_ROLE_MOMENTUM,
	TSR_ROLE_SLOW_MOMENTUM, /* another one beside it, as AdEMAMix has */
	TSR_ROLE_VARIANCE,
	TSR_ROLE_MAX_VARIANCE, /* AMSGrad */
	TSR_ROLE_MASTER, /* an FP32 copy of the weight that an optimizer keeps */
	TSR_ROLE_STEP, /* the number of steps that the optimizer took */
	TSR_ROLE_SCALAR, /* powers of betas and their like */
	TSR_ROLE_STATE, /* something else that an optimizer keeps */
};

struct tsr_tensor_role {
	enum tsr_role role;
	bool state; /* its name is that of something an optimizer keeps, whatever a rule says */
	size_t weight; /* the tensor that is its weight; SIZE_MAX: it is one, or has none that is known */
};

/* Whether a tensor of this type can be a weight or a state that values are computed from. */
bool tsr_names_is_floating(enum tsr_dtype dtype);

/*
 * The name without what wrappers add and without leading "model." or "params.": equal for the same parameter
 * under different names.  In the arena; NULL when out of memory.
 */
char *tsr_names_canonical(struct tsr_arena *a, const char *name);

#endif
