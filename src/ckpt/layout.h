/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that are not one run of bytes: strided views, chunks, other byte orders. */
#ifndef TSR_CKPT_LAYOUT_H
#define TSR_CKPT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ckpt/checkpoint_model.h"
#include "tersor/status.h"

/* A box of an array's elements, and where they are in a file. */
struct tsr_chunk {
	const uint64_t *start, *size; /* of the box, one number per dimension of the array */
	const uint64_t *stride; /* in elements; may be 0 */
	unsigned file;
	uint64_t offset; /* in bytes: of the box's first element */
	bool has_crc; /* whether the record that holds the box has a checksum: of these bytes */
	uint32_t crc;
	uint64_t crc_offset, crc_nbytes;
};

/*
 * How an array is stored when it is not one run of bytes in row-major order.  Every
 * element is in exactly one chunk.
 */
struct tsr_layout {
	size_t nchunks;
	const struct tsr_chunk *chunks; /* sorted by their start */
	bool flat; /* chunks are boxes in one dimension: of the elements in row-major order */
	bool swapped; /* elements are big-endian */
	bool bf16_integers; /* an I8 array that is stored as BF16 holding whole numbers */
	bool integers_bf16; /* the other way round: BF16 whole numbers, stored as one run of I8,
			     * in a file or in memory */
};

/*
 * One chunk for the whole of @a, whose bytes are contiguous in its file: row by row, or column by
 * column.  It borrows the shape.  NULL if the arena has no room.
 */
struct tsr_layout *tsr_layout_whole(struct tsr_arena *arena, const struct tsr_array *a,
				    bool columns);

/* Whether strides put the elements of a shape one after the other, in some order of its dimensions. */
bool tsr_strides_are_dense(unsigned rank, const uint64_t *shape, const uint64_t *stride);

/* Whether they are those of a row-major tensor, also in dimensions of one element. */
bool tsr_strides_are_rows(unsigned rank, const uint64_t *shape, const uint64_t *stride);

/*
 * Consecutive elements of a row-major tensor, in the order in which dense strides put them: @put is called
 * with runs of bytes and their offset in the tensor.  @bytes are @n elements of @item bytes from number
 * @first on.  Return: what @put returned first that is not TSR_OK, or TSR_E_NOMEM.
 */
struct tsr_strided {
	unsigned rank;
	const uint64_t *shape, *stride;
	size_t item;
};
typedef enum tsr_status tsr_put_run_fn(void *ctx, const void *bytes, size_t nbytes, uint64_t offset,
				       struct tsr_err *err);
enum tsr_status tsr_strided_put(const struct tsr_strided *t, uint64_t first, uint64_t n,
				const void *bytes, tsr_put_run_fn *put, void *ctx,
				struct tsr_err *err);

/* @nbytes of an array with a layout, in row-major order, from byte @offset; whole elements. */
enum tsr_status tsr_layout_read(const struct tsr_checkpoint *c, const struct tsr_array *a,
				uint64_t offset, size_t nbytes, void *buf, struct tsr_err *err);

#endif
