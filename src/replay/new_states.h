/* SPDX-License-Identifier: Apache-2.0 */
/* States that the checkpoint did not have get a tensor, and a place in what was saved around it. */
#ifndef TSR_REPLAY_NEW_STATES_H
#define TSR_REPLAY_NEW_STATES_H

#include "replay/replaying.h"

/*
 * Settle before the first step where states will go that the checkpoint does not have:
 * TSR_E_UNSUPPORTED if nothing says it.  Call it if there will be an output.
 */
enum tsr_status tsr_replay_plan_new_states(struct tsr_replaying *r);
void tsr_replay_free_new_states(struct tsr_replaying *r);

/* Add tensors for these states, and for counters. */
enum tsr_status tsr_replay_add_new_states(struct tsr_replaying *r);

#endif
