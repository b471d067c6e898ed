/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on a GPU: the state is there from the first step to the last, gradients pass. */
#ifndef TSR_REPLAY_ON_GPU_H
#define TSR_REPLAY_ON_GPU_H

#include "replay/stepping.h"

/* A GPU that a replay steps on, with the state and what else takes memory there. */
struct tsr_replay_gpu;

/* TSR_E_USAGE if the options ask for a GPU, and for what only the CPU does. */
enum tsr_status tsr_replay_gpu_check(const struct tsr_replaying *r);

/*
 * Take the GPU that the options ask for, and all memory on it that the replay needs; sets r->gpu,
 * NULL for the CPU.  The state must have been planned.
 *
 * Return: TSR_E_NOMEM if the state does not fit; TSR_E_IO if the GPU cannot be used.
 */
enum tsr_status tsr_replay_gpu_open(struct tsr_replaying *r);

/* Waits for what the GPU still does.  NULL is allowed. */
void tsr_replay_gpu_close(struct tsr_replay_gpu *gpu);

/* Copy the loaded state to the GPU, and back behind the last step; nothing without r->gpu. */
enum tsr_status tsr_replay_gpu_put_state(struct tsr_replaying *r);
enum tsr_status tsr_replay_gpu_get_state(struct tsr_replaying *r);

/*
 * The steps of a window that is open and planned.  TSR_E_FORMAT with w->nonfinite: a gradient is
 * not finite.
 */
enum tsr_status tsr_replay_gpu_window(struct tsr_replay_window *w);

#endif
