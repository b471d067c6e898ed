/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of deltas: coded by what differs from a base where that takes fewer bytes. */
#ifndef TSR_CONTAINER_DELTA_WRITE_H
#define TSR_CONTAINER_DELTA_WRITE_H

#include <stdatomic.h>

#include "ckpt/checkpoint_model.h"
#include "ckpt/tensor_tiles.h"
#include "entropy/entropy.h"

/* What one thread codes pieces of deltas with. */
struct tsr_delta_scratch {
	unsigned char old[TSR_PIECE_NBYTES]; /* of the base; of two planes one behind the other */
	unsigned char both[TSR_PIECE_NBYTES]; /* two planes that are coded together */
	uint16_t scales[TSR_PIECE_ELEMENTS]; /* of codes of variances, which the caller reads */
	unsigned char *coded; /* room for a coded piece */
};

/* How the pieces of two planes that may be coded together turned out; the first that is coded decides. */
enum tsr_delta_outcome { TSR_DELTA_OPEN, TSR_DELTA_APART, TSR_DELTA_TOGETHER };

/*
 * A piece of a plane, and how it is coded without a base.  @both are then the elements of two planes that are
 * coded together, this one among them, or NULL.
 */
struct tsr_delta_piece {
	const struct tsr_checkpoint *base;
	const struct tsr_tensor *tensor;
	unsigned plane;
	struct tsr_tile tile;
	struct tsr_entropy *entropy;
	const unsigned char *plain;
	size_t nbytes; /* of @plain */
	unsigned char **coded; /* exchanged with that of the scratch if it is coded again */
	size_t *coded_nbytes;
	atomic_uchar *outcome; /* of two planes: noted for the other one */
};

/* NULL when out of memory. */
struct tsr_delta_scratch *tsr_delta_scratch_new(void);
void tsr_delta_scratch_free(struct tsr_delta_scratch *s);

/* Code the piece of one plane by its differences if that takes fewer bytes. */
enum tsr_status tsr_delta_code(struct tsr_delta_scratch *s, const struct tsr_delta_piece *p,
			       struct tsr_err *err);

/*
 * The same of a plane and its corrections, whose elements are in s->both.  They are coded together, in the
 * piece of plane 0, if that takes fewer bytes than both of them do apart.
 */
enum tsr_status tsr_delta_code_both(struct tsr_delta_scratch *s, const struct tsr_delta_piece *p,
				    struct tsr_err *err);

#endif
