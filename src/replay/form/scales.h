/* SPDX-License-Identifier: Apache-2.0 */
/* The form of a state: scales that follow it, and blocks that are learned. */
#ifndef TSR_REPLAY_FORM_SCALES_H
#define TSR_REPLAY_FORM_SCALES_H

#include "replay/replaying.h"

/*
 * Give @coding f32 scales instead of e8m8 ones if these cannot follow the slot, and the options do
 * not insist on them; the result remembers why.
 */
void tsr_replay_choose_scale(const struct tsr_replaying *r, enum tsr_slot slot,
			     struct tsr_coding *coding);

/* Note each slot whose scales cannot follow it. */
enum tsr_status tsr_replay_note_scales(struct tsr_replaying *r);

/* Whether @to is @from but for its scales, which are f32 instead of e8m8: every value fits. */
bool tsr_replay_scale_widens(const struct tsr_coding *from, const struct tsr_coding *to);

/* The values of @n e8m8 scales. */
void tsr_replay_widen_scales(const struct tsr_coding *from, unsigned plane, const void *scale,
			     size_t nbytes, float *ret);

/* States whose blocks and codebook are learned: the checkpoint's, or those of the first recorded step. */

/*
 * Find the codebook of the checkpoint, and learn what it lacks for the wanted states from the gradients of
 * the first step of the recording, whichever is replayed first.
 */
enum tsr_status tsr_replay_learn(struct tsr_replaying *r);

/*
 * The blocks that a tensor of the checkpoint has, if its codec is learned, with the one codebook; it was
 * packed here or is of Gefen's program.  False for others.
 */
bool tsr_replay_own_learned(const struct tsr_replaying *r, const struct tsr_replay_param *p,
			    enum tsr_slot slot, struct tsr_coding *ret);

/* Give a state its blocks.  It becomes f32 where no gradient says what they are. */
void tsr_replay_fit_learned(struct tsr_replaying *r, const struct tsr_replay_param *p,
			    enum tsr_slot slot, struct tsr_coding *coding);

/* TSR_E_FORMAT, naming the tensor, if blocks do not divide it; TSR_E_LIMIT if they are too long. */
enum tsr_status tsr_replay_check_blocks(const struct tsr_replaying *r,
					const struct tsr_replay_param *p);

/* Say how many states became f32. */
enum tsr_status tsr_replay_note_unlearned(struct tsr_replaying *r);

/* Whether planes that Gefen's program wrote hold what those of this coding do, magnitudes widened to F32. */
bool tsr_replay_is_gefens(const struct tsr_coding *stored, const struct tsr_coding *coding);

#endif
