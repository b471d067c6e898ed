/* SPDX-License-Identifier: Apache-2.0 */
/* The resident state: how it gets into memory, and out of it. */
#ifndef TSR_REPLAY_STATE_H
#define TSR_REPLAY_STATE_H

#include "replay/replaying.h"

/* Whether the momentum of a parameter is kept in ratios to its variance. */
static inline bool tsr_replay_is_relative(const struct tsr_replay_param *p)
{
	const struct tsr_codec *codec = p->coding[TSR_SLOT_MOMENTUM].codec;

	return codec && codec->relative;
}

/* Allocate the states of @first and of those that also take its steps; read, verify, decode and encode. */
enum tsr_status tsr_replay_load_states(struct tsr_replaying *first);

/* With the state @on_disk, that has its memory. */
void tsr_replay_free_state(struct tsr_replay_param *params, size_t n, bool on_disk,
			   unsigned threads);

#endif
