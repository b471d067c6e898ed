/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on GPUs. */
#ifndef TSR_REPLAY_GPU_STEPS_H
#define TSR_REPLAY_GPU_STEPS_H

#include "replay/window.h"
#include "step/step_compare.h"

/*
 * The steps of a window that is open and planned, with the state on r->gpus.  Fails as
 * tsr_replay_check_report() does.
 */
enum tsr_status tsr_replay_gpu_steps(struct tsr_replay_window *w);

/* What they compared, of state number @state and a parameter: of the one step of the window. */
const struct tsr_compare *tsr_replay_gpu_compared(const struct tsr_replay_window *w, unsigned state,
						  size_t param);

#endif
