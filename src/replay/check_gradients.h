/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that are not finite. */
#ifndef TSR_REPLAY_CHECK_GRADIENTS_H
#define TSR_REPLAY_CHECK_GRADIENTS_H

#include "replay/window.h"

/* Look through all gradients of an open window, and mark the steps with such a one as skipped. */
enum tsr_status tsr_replay_skip_steps(struct tsr_replay_window *w);

/* After a tile was found to have one: fail with the first of the first step that has any. */
enum tsr_status tsr_replay_name_nonfinite(struct tsr_replay_window *w);

#endif
