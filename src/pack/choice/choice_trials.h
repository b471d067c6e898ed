/* SPDX-License-Identifier: Apache-2.0 */
/* Trying candidates on the data: one walk over the tensors that are not settled for one of each. */
#ifndef TSR_PACK_CHOICE_TRIALS_H
#define TSR_PACK_CHOICE_TRIALS_H

#include "pack/choice/choice.h"
#include "pack/choice/choice_units.h"

/*
 * Try the options of all units, each until one has an error of at most @bound, or with a negative @bound
 * all of them.  On success each unit's first ntried options have their errors.
 */
enum tsr_status tsr_choice_try(const struct tsr_choosing *choosing, struct tsr_choice_units *units,
			       double bound, struct tsr_err *err);

#endif
