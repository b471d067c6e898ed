/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that share memory in a way that no output keeps. */
#ifndef TSR_CKPT_SHARED_VIEWS_H
#define TSR_CKPT_SHARED_VIEWS_H

#include "ckpt/checkpoint_model.h"

/*
 * Note the arrays that share elements with another one under a different view, such as weights tied by
 * transposition: each is written whole, and they come apart.  Views that leave out elements between
 * theirs count only beside one that does not: two of them may interleave.
 */
enum tsr_status tsr_note_shared_views(struct tsr_checkpoint *c, struct tsr_err *err);

#endif
