/* SPDX-License-Identifier: Apache-2.0 */
/* All steps of a replay, window by window. */
#ifndef TSR_REPLAY_STEPPING_H
#define TSR_REPLAY_STEPPING_H

#include "replay/replaying.h"

/* Step the loaded state, which is on GPUs if there is r->gpus. */
enum tsr_status tsr_replay_run_steps(struct tsr_replaying *r);

#endif
