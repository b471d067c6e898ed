/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of a replay: a file of them, step by step. */
#ifndef TSR_REPLAY_SIGN_STEPS_H
#define TSR_REPLAY_SIGN_STEPS_H

#include "replay/window.h"

struct tsr_replay_signing;

/* Begin the file with the state before the first step, once it is loaded. */
enum tsr_status tsr_replay_begin_signing(struct tsr_replaying *r);

/* The gradients of the window, which has one step, and the state after it. */
enum tsr_status tsr_replay_sign_step(struct tsr_replay_window *w);

/* Put the file in place; free what is there, if anything is. */
enum tsr_status tsr_replay_end_signing(struct tsr_replaying *r);
void tsr_replay_drop_signing(struct tsr_replaying *r);

#endif
