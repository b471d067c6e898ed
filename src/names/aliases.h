/* SPDX-License-Identifier: Apache-2.0 */
/* The components of names that say what a tensor is. */
#ifndef TSR_NAMES_ALIASES_H
#define TSR_NAMES_ALIASES_H

#include <stdbool.h>
#include <stddef.h>

#include "ckpt/checkpoint_model.h"
#include "names/roles.h"

/* A component with which the name of a state ends or, inside an optimizer's tree, begins. */
struct tsr_alias {
	const char *component;
	enum tsr_role role;
	/*
	 * It could as well be a parameter's own name, and counts only if the rest names a weight: one
	 * of the same shape, unless the state is @factored.
	 */
	bool weak;
	bool factored; /* its shape is not its weight's */
};

/* The last component of a name, behind '.' or '/'; the name if it has one only. */
const char *tsr_names_last(const char *name);

/* The alias that the @len bytes at @component are, or NULL. */
const struct tsr_alias *tsr_alias_find(const char *component, size_t len);

/*
 * Whether the variance of this name is of gradients around their mean, as AdaBelief has it: only its own
 * rule steps that.
 */
bool tsr_alias_is_around_mean(const char *name);

/*
 * Whether a state is a factor that SOAP, Shampoo or the like precondition gradients with, or an inverse
 * root of one: a square matrix of such a name.  Not the eigenvectors.
 */
bool tsr_alias_is_factor(const struct tsr_tensor *t);

/*
 * That of HeavyBall's NAME.0.STEP_STATE_N with the last component at @last, or NULL: state N of a chain of
 * steps, for view 0 of the parameter.  *step_ret: the bytes of "STEP_".
 */
const struct tsr_alias *tsr_alias_find_stepped(const char *name, const char *last,
					       size_t *step_ret);

/* Whether the last component of a name is that of a buffer, which a model keeps but does not train. */
bool tsr_alias_is_buffer(const char *name);

#endif
