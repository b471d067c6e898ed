/* SPDX-License-Identifier: Apache-2.0 */
/* What is decided before a replay begins, in this order; only headers are read for it. */
#ifndef TSR_REPLAY_REPLAY_PLAN_H
#define TSR_REPLAY_REPLAY_PLAN_H

#include "replay/replaying.h"

/* Which steps are replayed; by which rule, with which hyperparameters per group and lr per step. */
enum tsr_status tsr_replay_choose_steps(struct tsr_replaying *r);
enum tsr_status tsr_replay_choose_hyper(struct tsr_replaying *r);

/*
 * Match the recording's parameters with the checkpoint's tensors, and look at the headers of every
 * step: TSR_E_FORMAT names the step and the tensor that is missing, extra or of another shape.  Of
 * several states of the same steps only @first looks at these.
 */
enum tsr_status tsr_replay_find_params(struct tsr_replaying *r, const struct tsr_replaying *first);

/*
 * Refuse states of the table's parameters that are part of another rule: TSR_E_UNSUPPORTED.  Note those that
 * the rule does not have, once it is known what it has.
 */
enum tsr_status tsr_replay_check_states(const struct tsr_replaying *r);
enum tsr_status tsr_replay_note_states(struct tsr_replaying *r);

/* Find how many steps each parameter has seen before the first. */
enum tsr_status tsr_replay_read_counts(struct tsr_replaying *r);

/* Choose the codings, and cut the parameters into tiles. */
enum tsr_status tsr_replay_plan_state(struct tsr_replaying *r);

/* Cut the parameters of @first, and of those that also take its steps, into tiles that fit all of them. */
enum tsr_status tsr_replay_share_tiles(struct tsr_replaying *first);

/* At the end: put the counts, and the number of the last step, into the checkpoint. */
enum tsr_status tsr_replay_write_counts(struct tsr_replaying *r);

#endif
