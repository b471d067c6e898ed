/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays put together from runs of the elements of others. */
#ifndef TSR_LAYOUTS_FLAT_JOIN_H
#define TSR_LAYOUTS_FLAT_JOIN_H

#include "ckpt/build.h"

/* An array in the making.  Start from @c, @name and @err alone; end with tsr_flat_join_free(). */
struct tsr_flat_join {
	struct tsr_checkpoint *c;
	const char *name; /* of the array; in the checkpoint's arena */
	struct tsr_err *err;
	size_t n;
	struct tsr_chunk *chunks;
	uint64_t numel; /* so far */
	enum tsr_dtype dtype; /* of the first run, and so of all */
	bool swapped;
};

/* Append elements @first to @first + @n - 1 of array @from, in row-major order; it has them. */
enum tsr_status tsr_flat_join_add(struct tsr_flat_join *j, size_t from, uint64_t first, uint64_t n);

/* Make them an array of this shape, which has as many elements and lives in the arena. */
enum tsr_status tsr_flat_join_finish(struct tsr_flat_join *j, unsigned rank, const uint64_t *shape,
				     size_t *array_ret);

void tsr_flat_join_free(struct tsr_flat_join *j);

#endif
