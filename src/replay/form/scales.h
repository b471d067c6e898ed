/* SPDX-License-Identifier: Apache-2.0 */
/* Scales that follow a state which changes little in a step. */
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

#endif
