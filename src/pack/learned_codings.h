/* SPDX-License-Identifier: Apache-2.0 */
/* Codings whose blocks and codebook are learned, of the tensors that are packed. */
#ifndef TSR_PACK_LEARNED_CODINGS_H
#define TSR_PACK_LEARNED_CODINGS_H

#include "tersor/pack.h"

/* What was learned for one packing; all zeros at first. */
struct tsr_pack_learned {
	const struct tsr_learned *learned; /* NULL: nothing is needed */
	struct tsr_learned *own; /* the same, if it was learned here */
	const float *codebook; /* in the arena of the checkpoint */
	bool any_size; /* accept more bytes than the usual codecs take */
	/* Tensors that have the usual codecs instead: */
	size_t nlarge, nunknown, nnomatrix;
	const struct tsr_tensor *nomatrix; /* the first of the last */
};

/* Learn what @options needs, unless they have it, from @c, whose kinds are known; find factors. */
enum tsr_status tsr_pack_learn(struct tsr_checkpoint *c, const struct tsr_pack_options *options,
			       const struct tsr_run *run, struct tsr_pack_learned *ret,
			       struct tsr_err *err);

/*
 * Complete the coding of a tensor of @c in a learned codec.  If that takes more than 1.1 bytes per element,
 * or nothing is known of the tensor, it becomes that of the usual codec of its kind; so do those in a
 * low-rank codec that have no factors.
 */
enum tsr_status tsr_pack_fit(struct tsr_pack_learned *l, const struct tsr_checkpoint *c,
			     struct tsr_tensor *t, struct tsr_err *err);

/* Note how many tensors have the usual codecs. */
enum tsr_status tsr_pack_note_learned(const struct tsr_pack_learned *l, struct tsr_checkpoint *c,
				      struct tsr_err *err);

void tsr_pack_learned_free(struct tsr_pack_learned *l);

#endif
