/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps are replayed, by which rule, with which hyperparameters. */
#ifndef TSR_REPLAY_HYPER_H
#define TSR_REPLAY_HYPER_H

#include "replay/replaying.h"

enum tsr_status tsr_replay_choose_steps(struct tsr_replaying *r);

/* Choose the optimizer, hyperparameters per group and lr per step. */
enum tsr_status tsr_replay_choose_hyper(struct tsr_replaying *r);

#endif
