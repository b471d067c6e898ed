/* SPDX-License-Identifier: Apache-2.0 */
/* New states get a tensor each, and a place in what was saved around the tensors. */
#ifndef TSR_REPLAY_NEW_STATES_H
#define TSR_REPLAY_NEW_STATES_H

#include "replay/replaying.h"

/*
 * Decide before the first step where states go that the checkpoint does not have:
 * TSR_E_UNSUPPORTED if that is not clear.  Only needed for an output.
 */
enum tsr_status tsr_replay_plan_new_states(struct tsr_replaying *r);
void tsr_replay_free_new_states(struct tsr_replaying *r);

/* Add tensors for these states, and for counters. */
enum tsr_status tsr_replay_add_new_states(struct tsr_replaying *r);

#endif
