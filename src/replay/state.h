/* SPDX-License-Identifier: Apache-2.0 */
/* The resident state: what it is coded as, and how it gets into memory. */
#ifndef TSR_REPLAY_STATE_H
#define TSR_REPLAY_STATE_H

#include "replay/replaying.h"

/* Choose the codings, and cut the parameters into tiles. */
enum tsr_status tsr_replay_plan_state(struct tsr_replaying *r);

/* Cut the parameters of @first, and of those that also take its steps, into tiles that fit all of them. */
enum tsr_status tsr_replay_share_tiles(struct tsr_replaying *first);

/* Allocate the state; read, verify, decode and encode it. */
enum tsr_status tsr_replay_load_state(struct tsr_replaying *r);

void tsr_replay_free_state(struct tsr_replay_param *params, size_t n, unsigned threads);

#endif
