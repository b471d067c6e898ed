/* SPDX-License-Identifier: Apache-2.0 */
/* Bases of deltas that are read only once: the hashes of the pieces that were read so far. */
#ifndef TSR_CKPT_UNPROVEN_H
#define TSR_CKPT_UNPROVEN_H

#include "base/tiles.h"
#include "ckpt/checkpoint_model.h"

struct tsr_known_piece {
	uint64_t hash;
	bool is; /* known */
};

struct tsr_unproven {
	const char *path; /* where the base was found */
	struct tsr_tiles pieces; /* of its tensors */
	struct tsr_known_piece *known; /* per piece */
};

/* The pieces that the tensors of a checkpoint that is not packed are hashed in. */
enum tsr_status tsr_unproven_pieces(const struct tsr_checkpoint *c, struct tsr_tiles *pieces,
				    struct tsr_err *err);

/* From now on what is read of @base is noted, until it is closed. */
enum tsr_status tsr_unproven_new(struct tsr_checkpoint *base, const char *path,
				 struct tsr_err *err);

/* A piece of a tensor of a base was read; nothing if its set is known.  One thread per piece. */
void tsr_unproven_note(const struct tsr_checkpoint *base, size_t tensor, uint64_t piece,
		       const void *bytes, size_t nbytes);

/* NULL is allowed. */
void tsr_unproven_free(struct tsr_unproven *u);

#endif
