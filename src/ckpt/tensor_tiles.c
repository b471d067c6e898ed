/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles that a checkpoint's tensors are read, coded and measured in. */
#include "ckpt/tensor_tiles.h"

#include "base/fail.h"

enum tsr_status tsr_tensor_tiles(struct tsr_tiles *tiles, const struct tsr_tensor *tensors,
				 size_t n, const char *what, struct tsr_err *err)
{
	TSR_TRY(tsr_tiles_init(tiles, n, what, err));
	for (size_t i = 0; i < n; i++) {
		const struct tsr_tensor *t = &tensors[i];

		if (t->coding.codec)
			tsr_tiles_add(tiles, t->numel,
				      TSR_TILE_ELEMENTS -
					      TSR_TILE_ELEMENTS % tsr_coding_align(&t->coding));
		else
			tsr_tiles_add(tiles, tsr_tensor_nbytes(t), TSR_TILE_NBYTES);
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
