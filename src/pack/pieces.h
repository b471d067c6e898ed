/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_PACK_PIECES_H
#define TSR_PACK_PIECES_H

#include "tersor/checkpoint.h"
#include "tersor/status.h"

/*
 * Tensors go through in pieces: 262,144 elements, or the multiple of the group next below; of a
 * tensor without a codec, as many bytes as such a piece of FP32.  Sums of errors are added up piece
 * by piece, so docs/format.md names these sizes.
 */
#define TSR_PIECE_ELEMENTS 262144u
#define TSR_PIECE_NBYTES (TSR_PIECE_ELEMENTS * 4)

/* A run of elements of one tensor, or of bytes if it has no codec. */
struct tsr_piece {
	size_t tensor;
	uint64_t first;
	size_t n;
	bool last; /* of its tensor */
};

/* The pieces of a list of tensors, one tensor behind the other. */
struct tsr_pieces {
	const struct tsr_checkpoint *c;
	uint64_t *start; /* per tensor: number of its first piece; one entry more at the end */
};

/* A tensor without elements has one empty piece. */
enum tsr_status tsr_pieces_init(struct tsr_pieces *p, const struct tsr_checkpoint *c,
				struct tsr_err *err);
void tsr_pieces_free(struct tsr_pieces *p);
uint64_t tsr_pieces_count(const struct tsr_pieces *p);
struct tsr_piece tsr_pieces_get(const struct tsr_pieces *p, uint64_t number);

/* Bytes of plane @plane that a piece covers, and where in the plane they begin. */
uint64_t tsr_piece_plane_offset(const struct tsr_tensor *t, unsigned plane,
				const struct tsr_piece *p);
size_t tsr_piece_plane_nbytes(const struct tsr_tensor *t, unsigned plane,
			      const struct tsr_piece *p);

/* Read what a piece covers of each plane of a stored tensor. */
enum tsr_status tsr_piece_read(const struct tsr_checkpoint *c, const struct tsr_piece *p,
			       void *const plane[], struct tsr_err *err);

#endif
