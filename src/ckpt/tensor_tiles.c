/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles that a checkpoint's tensors are read, coded and measured in. */
#include "ckpt/tensor_tiles.h"

#include "base/fail.h"

static uint64_t part_of(const struct tsr_tensor *t, uint64_t elements)
{
	const uint64_t bits = tsr_dtype_bits(t->dtype);

	if (t->coding.codec)
		return elements - elements % tsr_coding_align(&t->coding);
	return elements * (bits < 32 ? bits : 32) / 8;
}

uint64_t tsr_tensor_piece(const struct tsr_tensor *t)
{
	return part_of(t, TSR_PIECE_ELEMENTS);
}

static uint64_t tile_of(const struct tsr_tensor *t)
{
	return part_of(t, TSR_TILE_ELEMENTS);
}

bool tsr_tile_is_piece(const struct tsr_tensor *t, const struct tsr_tile *tile)
{
	const uint64_t piece = tsr_tensor_piece(t);

	return tile->first % piece == 0 && (tile->n == piece || (tile->last && tile->n < piece));
}

/* Whether any tiles will do: errors are summed in a tensor's own, but here there are none. */
static bool is_exact(const struct tsr_tensor *t)
{
	return !t->coding.codec || (t->coding.codec->lossless && tsr_coding_align(&t->coding) == 1);
}

/* The elements of a tile of both; 0 if theirs are not the same. */
static uint64_t pair_tile(const struct tsr_tensor *a, const struct tsr_tensor *b)
{
	const uint64_t x = is_exact(a) ? TSR_TILE_ELEMENTS : tile_of(a);
	const uint64_t y = is_exact(b) ? TSR_TILE_ELEMENTS : tile_of(b);
	const uint64_t least = x < y ? x : y;

	return is_exact(a) || is_exact(b) || x == y || a->numel <= least ? least : 0;
}

const struct tsr_tensor *tsr_tensor_partner(const struct tsr_tensor *tensors, size_t n, size_t i)
{
	const struct tsr_tensor *t = &tensors[i], *other;

	if (!t->partner || t->partner > n)
		return NULL;
	other = &tensors[t->partner - 1];
	return other != t && other->partner == i + 1 && other->numel == t->numel ? other : NULL;
}

bool tsr_tensor_is_paired(const struct tsr_tensor *tensors, size_t n, size_t i, bool raw)
{
	const struct tsr_tensor *t = &tensors[i], *other = tsr_tensor_partner(tensors, n, i);

	raw = raw && other && t->dtype == TSR_F32 && other->dtype == TSR_F32;
	return other && (t->coding.codec || other->coding.codec || raw) && pair_tile(t, other) > 0;
}

enum tsr_status tsr_tensor_tiles(struct tsr_tiles *tiles, const struct tsr_tensor *tensors,
				 size_t n, bool pairs, bool raw, const bool *skip, const char *what,
				 struct tsr_err *err)
{
	TSR_TRY(tsr_tiles_init(tiles, n, what, err));
	for (size_t i = 0; i < n; i++) {
		const struct tsr_tensor *t = &tensors[i];
		const bool paired = pairs && tsr_tensor_is_paired(tensors, n, i, raw);

		if ((skip && skip[i]) || (paired && t->partner - 1 < i))
			tsr_tiles_skip(tiles);
		else if (paired)
			tsr_tiles_add(tiles, t->numel, pair_tile(t, &tensors[t->partner - 1]));
		else
			tsr_tiles_add(tiles, t->coding.codec ? t->numel : tsr_tensor_nbytes(t),
				      tile_of(t));
	}
	return TSR_OK;
}

uint64_t tsr_tile_plane_offset(const struct tsr_tensor *t, unsigned plane,
			       const struct tsr_tile *tile)
{
	return t->coding.codec ? tsr_plane_nbytes(&t->coding, plane, tile->first) : tile->first;
}

size_t tsr_tile_plane_nbytes(const struct tsr_tensor *t, unsigned plane,
			     const struct tsr_tile *tile)
{
	return t->coding.codec ? (size_t)tsr_plane_nbytes(&t->coding, plane, tile->n) : tile->n;
}
