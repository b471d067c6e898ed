/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_PACK_WALK_H
#define TSR_PACK_WALK_H

#include "pack/pieces.h"
#include "tersor/checkpoint.h"
#include "tersor/run.h"

/* A piece of a tensor as it was before packing. */
struct tsr_restored {
	struct tsr_piece piece;
	const struct tsr_tensor *tensor;
	const void *data; /* FP32 elements if the tensor has a codec, else its bytes */
	size_t nbytes;
	uint64_t offset; /* of @data in the tensor's bytes */
};

/**
 * struct tsr_walk - Go through everything that a checkpoint stores, decoded
 * @work, @commit, @finish: as in struct tsr_pipeline; each may be NULL
 * @extra_nbytes: memory that each thread gets for them
 *
 * In a packed file every plane is checked against its hash, in other containers every record
 * against its CRC-32 if it has one: at the latest at the end of its tensor, before the @commit of
 * the last piece.
 */
struct tsr_walk {
	const struct tsr_checkpoint *c;
	size_t extra_nbytes;
	enum tsr_status (*work)(void *ctx, void *extra, const struct tsr_restored *r,
				struct tsr_err *err);
	enum tsr_status (*commit)(void *ctx, void *extra, const struct tsr_restored *r,
				  struct tsr_err *err);
	enum tsr_status (*finish)(void *ctx, void *extra, const struct tsr_restored *r,
				  struct tsr_err *err);
	void *ctx;
};

enum tsr_status tsr_walk_run(const struct tsr_walk *walk, const struct tsr_run *run,
			     struct tsr_err *err);

#endif
