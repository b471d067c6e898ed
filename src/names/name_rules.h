/* SPDX-License-Identifier: Apache-2.0 */
/* What a user should know about the expressions that settle kinds. */
#ifndef TSR_NAMES_NAME_RULES_H
#define TSR_NAMES_NAME_RULES_H

#include "ckpt/build.h"
#include "tersor/names.h"

/* The error for an invalid regular expression; for a glob it suggests the expression. */
enum tsr_status tsr_name_rule_fail(const char *regex, const char *reason, struct tsr_err *err);

/*
 * An expression that matched @nmatches names of a checkpoint: a note if it is meant as a glob, by its looks
 * and by what that would match.
 */
enum tsr_status tsr_name_rule_note(struct tsr_checkpoint *c, const char *regex, size_t nmatches,
				   struct tsr_err *err);

/* TSR_E_USAGE for the first rule that did not match any name of @path. */
enum tsr_status tsr_name_rules_strict(const struct tsr_name_rule *rules, unsigned nrules,
				      const bool *matched, const char *path, struct tsr_err *err);

/* A note for each of the rules that does not match a name of the checkpoint. */
enum tsr_status tsr_name_rules_note(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
				    unsigned nrules, struct tsr_err *err);

#endif
