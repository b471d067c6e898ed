/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors are the model's own, by their names. */
#ifndef TSR_NAMES_MODEL_NAMES_H
#define TSR_NAMES_MODEL_NAMES_H

#include "tersor/names.h"

/*
 * tsr_names_assign(), which also says of each tensor whether it is the model's own: a weight or a
 * buffer, but no momentum, variance, step counter, master copy or anything else that an optimizer
 * keeps.  @model has one entry per tensor.
 */
enum tsr_status tsr_names_model(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
				unsigned nrules, bool *model, struct tsr_err *err);

#endif
