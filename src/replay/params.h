/* SPDX-License-Identifier: Apache-2.0 */
/* Matching the parameters of a recording with the weights and states of the checkpoint. */
#ifndef TSR_REPLAY_PARAMS_H
#define TSR_REPLAY_PARAMS_H

#include "replay/replaying.h"

/*
 * Match the recording's parameters with the checkpoint's tensors, and look at the headers of every
 * step: TSR_E_FORMAT names the step and the tensor that is missing, extra or of another shape.  Of several
 * states of the same steps only @first looks at these.
 */
enum tsr_status tsr_replay_find_params(struct tsr_replaying *r, const struct tsr_replaying *first);

#endif
