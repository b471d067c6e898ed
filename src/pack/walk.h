/* SPDX-License-Identifier: Apache-2.0 */
/* Going through all tensors of a checkpoint, tile by tile: each is read, checked and decoded. */
#ifndef TSR_PACK_WALK_H
#define TSR_PACK_WALK_H

#include "base/tiles.h"
#include "pack/tile_codec.h"
#include "ckpt/checkpoint_model.h"
#include "tersor/run.h"

/* A tile of a tensor as it was before packing. */
struct tsr_walked {
	struct tsr_tile tile; /* in elements of a tensor with a codec, else in bytes */
	const struct tsr_tensor *tensor; /* as the walk wants it */
	const void *data; /* elements as FP32 values if it has a codec, else bytes */
	size_t nbytes; /* of the tile in the tensor's own dtype */
	uint64_t offset; /* likewise: of the tile in the tensor's bytes */
	struct tsr_coder *coder; /* @data is in its memory */
	bool has_planes; /* coder->m->plane holds the tile in the wanted coding */
	bool hashed; /* and it is checked against the hashes in @tensor */
	void *found; /* what work found of it, for the commit */
	void *extra; /* the walk's @extra_nbytes, which the commit of a part has none of */
	unsigned side; /* 1: the second of two tensors that the walk is in the middle of; else 0 */
};

typedef enum tsr_status tsr_walk_step(void *ctx, const struct tsr_walked *t, struct tsr_err *err);

/**
 * struct tsr_walk - How to go through a checkpoint
 * @c:       the checkpoint
 * @wanted:  NULL, or per tensor how it will be stored.  Tiles are those of this coding.  A tensor that
 *           is already stored that way comes with its planes; encoding it again could change them
 * @skip:    NULL, or per tensor whether to leave it out: of a momentum and its variance both or none
 * @encodes: the callers' steps encode with the coder
 * @what:    the file that a message of cancellation names
 * @work, @commit, @finish: as in struct tsr_pipeline; each may be NULL.  Without @work planes are only
 *           checked, not decoded
 * @work_pair: NULL, or what takes the place of two calls of @work where a momentum and its variance
 *           (each the `partner` of the other) share their tiles: those of both, the momentum first.
 *           Other steps are called for one after the other
 * @raw_pairs: also for those that are FP32 and stay so
 * @found_nbytes: what @work finds of a tile and @commit needs, at t->found: as in struct tsr_parted
 * @extra_nbytes: other memory that each thread gets for them, per tile
 * @hash_into: NULL, or per tensor where the hashes of planes go that @work encodes
 * @in_parts: done in parts where the run says so.  @commit then has neither data nor planes nor extra memory
 *
 * In a packed file every plane is checked against its hash, in other containers every record against
 * its CRC-32 if it has one: at the latest before the @commit of its tensor's last tile.  With @skip what
 * no single tile shows is left to a walk without it.
 */
struct tsr_walk {
	const struct tsr_checkpoint *c;
	const struct tsr_tensor *wanted;
	const bool *skip;
	bool encodes, raw_pairs;
	const char *what;
	size_t found_nbytes, extra_nbytes;
	struct tsr_tensor *hash_into;
	bool in_parts;
	tsr_walk_step *work, *commit, *finish;
	enum tsr_status (*work_pair)(void *ctx, const struct tsr_walked *const t[2],
				     struct tsr_err *err);
	void *ctx;
};

enum tsr_status tsr_walk_run(const struct tsr_walk *walk, const struct tsr_run *run,
			     struct tsr_err *err);

#endif
