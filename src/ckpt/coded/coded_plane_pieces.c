/* SPDX-License-Identifier: Apache-2.0 */
/* How coded planes are divided into pieces, and those into elements. */
#include "ckpt/coded/coded_plane.h"
#include "ckpt/tensor_tiles.h"

struct tsr_entropy_kind tsr_coded_kind(enum tsr_dtype dtype)
{
	const struct tsr_entropy_kind kind = tsr_entropy_kind(dtype);

	return kind.width ? kind : tsr_entropy_kind(TSR_U8);
}

static uint64_t units_of(const struct tsr_tensor *t)
{
	return t->coding.codec ? t->numel : tsr_tensor_nbytes(t);
}

uint64_t tsr_coded_npieces(const struct tsr_tensor *t)
{
	const uint64_t piece = tsr_tensor_piece(t), units = units_of(t);

	return units / piece + (units % piece != 0);
}

uint64_t tsr_coded_piece_nbytes(const struct tsr_tensor *t, unsigned plane)
{
	const uint64_t piece = tsr_tensor_piece(t);

	return t->coding.codec ? tsr_plane_nbytes(&t->coding, plane, piece) : piece;
}

/* A piece has at most 1 MiB, of elements of 1 to 8 bytes. */
size_t tsr_coded_piece_max(void)
{
	size_t most = 0;

	for (unsigned width = 1; width <= TSR_ENTROPY_WIDTH; width++) {
		const struct tsr_entropy_kind kind = { .width = width };
		const size_t n = TSR_PIECE_NBYTES / width;
		const size_t nbytes = tsr_entropy_bound(
			kind, n < TSR_ENTROPY_PIECE ? n : TSR_ENTROPY_PIECE);

		most = nbytes > most ? nbytes : most;
	}
	return most;
}
