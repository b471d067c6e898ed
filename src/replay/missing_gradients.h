/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that some steps have no gradient for. */
#ifndef TSR_REPLAY_MISSING_GRADIENTS_H
#define TSR_REPLAY_MISSING_GRADIENTS_H

#include "replay/replaying.h"

/* Note that a step has a gradient for the parameter; steps come in their order. */
void tsr_replay_saw_gradient(struct tsr_replay_param *p, size_t step);

/*
 * Put what all steps together lack of @n parameters into the result; TSR_E_FORMAT, naming the first
 * step and parameter, if that is to fail.
 */
enum tsr_status tsr_replay_list_missing(struct tsr_replaying *r,
					const struct tsr_replay_param *params, size_t n);

#endif
