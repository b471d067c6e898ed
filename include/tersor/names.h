/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of tensors, found by their names. */
#ifndef TERSOR_NAMES_H
#define TERSOR_NAMES_H

#include "tersor/api.h"
#include "tersor/checkpoint.h"
#include "tersor/status.h"

/* Tensors with a match of this POSIX extended regular expression in their name are of this kind. */
struct tsr_name_rule {
	const char *regex;
	enum tsr_kind kind;
};

/**
 * tsr_names_assign() - Find the kind of each tensor of a checkpoint, from names and shapes
 * @rules: @nrules rules of the user; the first that matches a name settles its kind
 *
 * Without a rule: momenta and variances are found by the names that optimizers give them
 * (docs/reading.md), other floating-point tensors of rank 1 or more are weights, everything else is
 * other.  A momentum or variance is joined to its weight by name, and must have its shape.
 * A packed file, which records its kinds, is left as it is.  No other thread may use @c meanwhile.
 *
 * Return: TSR_OK; TSR_E_FORMAT for a state that fits no weight's shape or that two tensors claim
 * to be; TSR_E_USAGE for a malformed expression; TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_names_assign(struct tsr_checkpoint *c,
					 const struct tsr_name_rule *rules, unsigned nrules,
					 struct tsr_err *err);

#endif
