/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a replay: to a GPU and back. */
#ifndef TSR_REPLAY_GPU_STATE_H
#define TSR_REPLAY_GPU_STATE_H

#include "replay/replaying.h"

/* Copy the loaded state to the GPU, and back after the last step; nothing without r->gpu. */
enum tsr_status tsr_replay_gpu_put_state(struct tsr_replaying *r);
enum tsr_status tsr_replay_gpu_get_state(struct tsr_replaying *r);

#endif
