/* SPDX-License-Identifier: Apache-2.0 */
/* The result: the checkpoint that was read, with its new state. */
#ifndef TSR_REPLAY_OUTPUT_H
#define TSR_REPLAY_OUTPUT_H

#include "replay/replaying.h"

/* TSR_E_USAGE or TSR_E_UNSUPPORTED if an output of the requested kind cannot hold the state. */
enum tsr_status tsr_replay_check_form(const struct tsr_replaying *r, const char *out);

/* Write the checkpoint with its new state, or only plan it. */
enum tsr_status tsr_replay_write(struct tsr_replaying *r, const char *out);

/* Let the tensors of the checkpoint have the state, where it is in memory. */
enum tsr_status tsr_replay_place_state(struct tsr_replaying *r);

/* The same for options->each_step, before the first step; TSR_E_UNSUPPORTED if it cannot be shown. */
enum tsr_status tsr_replay_show_state(struct tsr_replaying *r);

#endif
