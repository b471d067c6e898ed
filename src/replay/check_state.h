/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the state that are not finite after the last step. */
#ifndef TSR_REPLAY_CHECK_STATE_H
#define TSR_REPLAY_CHECK_STATE_H

#include "replay/replaying.h"

/*
 * Count them in the result: TSR_E_UNSUPPORTED if there are any and the state is to be @written, else
 * a note for the user.
 */
enum tsr_status tsr_replay_check_state(struct tsr_replaying *r, bool written);

#endif
