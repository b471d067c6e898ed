/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles that a checkpoint's tensors are read, coded and measured in. */
#ifndef TSR_CKPT_TENSOR_TILES_H
#define TSR_CKPT_TENSOR_TILES_H

#include "base/tiles.h"
#include "ckpt/checkpoint_model.h"

/*
 * What a tensor is hashed and coded in: format.md, section 4.7.  A piece is 262,144 elements, or the
 * next lower multiple of the group; without a codec it is not more bytes than such a piece of FP32.
 */
#define TSR_PIECE_ELEMENTS 262144u
#define TSR_PIECE_NBYTES (TSR_PIECE_ELEMENTS * 4)

/*
 * A tile is a piece, unless a tensor shares its tiles with one of other pieces.  Errors are summed tile by
 * tile, so these sizes decide the last bits of the figures.  Fuzzing has smaller ones: at least a group.
 */
#ifndef TSR_TILE_ELEMENTS
#define TSR_TILE_ELEMENTS TSR_PIECE_ELEMENTS
#endif
#define TSR_TILE_NBYTES (TSR_TILE_ELEMENTS * 4)

/*
 * The tiles of @n tensors: elements of those with a codec, bytes of the others.  With @pairs the jobs
 * of a momentum and its variance (tsr_tensor_is_paired() with @raw) are those of the first of them, their
 * units elements.  Tensors that @skip says, unless it is NULL, have none.  @what: for messages.
 */
enum tsr_status tsr_tensor_tiles(struct tsr_tiles *tiles, const struct tsr_tensor *tensors,
				 size_t n, bool pairs, bool raw, const bool *skip, const char *what,
				 struct tsr_err *err);

/* The partner of the tensor at @i, if that says the same and has as many elements; or NULL. */
const struct tsr_tensor *tsr_tensor_partner(const struct tsr_tensor *tensors, size_t n, size_t i);

/*
 * Whether the tensor at @i is one of a momentum and its variance that share their tiles: at least one
 * has a codec, or with @raw both are FP32, and their tiles are the same.
 */
bool tsr_tensor_is_paired(const struct tsr_tensor *tensors, size_t n, size_t i, bool raw);

/* The units of a tensor's pieces: elements with a codec, else bytes. */
uint64_t tsr_tensor_piece(const struct tsr_tensor *t);

/* Whether a tile is exactly a piece of its tensor. */
bool tsr_tile_is_piece(const struct tsr_tensor *t, const struct tsr_tile *tile);

/* Where a tile begins in one of the tensor's planes, and how many bytes of the plane it covers. */
uint64_t tsr_tile_plane_offset(const struct tsr_tensor *t, unsigned plane,
			       const struct tsr_tile *tile);
size_t tsr_tile_plane_nbytes(const struct tsr_tensor *t, unsigned plane,
			     const struct tsr_tile *tile);

#endif
