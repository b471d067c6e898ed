/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are not finite, in gradients and in the state after the last step. */
#ifndef TSR_REPLAY_CHECK_FINITE_H
#define TSR_REPLAY_CHECK_FINITE_H

#include "replay/window.h"

/* Look through all gradients of an open window, and mark the steps with such a one as skipped. */
enum tsr_status tsr_replay_skip_steps(struct tsr_replay_window *w);

/* After a tile was found to have one: fail with the first of the first step that has any. */
enum tsr_status tsr_replay_name_nonfinite(struct tsr_replay_window *w);

/*
 * Count such values of the state in the result: TSR_E_UNSUPPORTED if there are any and it is to
 * be @written, else a note for the user.
 */
enum tsr_status tsr_replay_check_state(struct tsr_replaying *r, bool written);

#endif
