/* SPDX-License-Identifier: Apache-2.0 */
/* The variances that go with a tile of momenta in a relative codec, or the products in a low-rank one. */
#ifndef TSR_PACK_BESIDE_H
#define TSR_PACK_BESIDE_H

#include "ckpt/read.h"
#include "ckpt/tensor_tiles.h"
#include "codec/loops.h"

/* Variances or products of a tile's elements, and the memory that getting them needs. */
struct tsr_beside {
	union {
		struct {
			float was[TSR_TILE_ELEMENTS]; /* as they are read */
			float will[TSR_TILE_ELEMENTS]; /* as they come back from their planes */
		};
		/* For a GPU, which makes products itself: a row has more elements than the rank. */
		unsigned char factors[TSR_STAGES_MAX * TSR_FACTOR_NBYTES *
				      (TSR_TILE_ELEMENTS / TSR_RANK + TSR_ROW_MAX)];
	};
	float momenta
		[TSR_TILE_ELEMENTS]; /* for the coder: elements while what it codes is in its memory */
	float x[2 * TSR_READ_MAX];
	struct tsr_read_scratch read;
};

/*
 * Fill in was and will for elements @first to @first + @n - 1 of a variance: @stored is how @c has it,
 * @wanted how it will be stored, or NULL if that is the same.  In a low-rank coding it is the momentum
 * itself, and these are its products.
 */
enum tsr_status tsr_beside_read(struct tsr_beside *b, const struct tsr_checkpoint *c,
				const struct tsr_tensor *stored, const struct tsr_tensor *wanted,
				uint64_t first, size_t n, struct tsr_err *err);

#endif
