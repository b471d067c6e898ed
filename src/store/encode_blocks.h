/* SPDX-License-Identifier: Apache-2.0 */
/* Coding the blocks of a snapshot's tensors as objects, on all threads. */
#ifndef TSR_STORE_ENCODE_BLOCKS_H
#define TSR_STORE_ENCODE_BLOCKS_H

#include "base/progress.h"
#include "store/store_data.h"

/* What a job works with. */
struct tsr_encode_scratch {
	struct tsr_object_reader base, source; /* the version before; the block that is coded */
	void *y[TSR_SLOTS]; /* what it decodes to */
	uint8_t *bytes;
	struct tsr_object_id id, needs[TSR_STORE_CHAIN_MAX];
	unsigned nneeds, base_at; /* which of its chain the base is */
	uint64_t read_nbytes, object_nbytes;
	bool is_new;
	struct tsr_store_sums sums;
};

/* What is coded: the caller sets the first members and the rest to zeros. */
struct tsr_encoding {
	struct tsr_store *store;
	struct tsr_snapshot *to; /* its tier says how, and its objects are filled in */
	const struct tsr_snapshot *base; /* the version before it, or NULL */
	/* Read a block to @s->source.y. */
	enum tsr_status (*read)(void *ctx, struct tsr_encode_scratch *s,
				const struct tsr_block_job *job, struct tsr_err *err);
	void *ctx;
	bool copy_rest; /* the objects of rests are there already */
	const bool *keep; /* per tensor: its objects, and what they need, are there; or NULL */
	bool same; /* a block must come back with its bits, or the object that it has stays */
	struct tsr_progress progress;
	struct tsr_store_added *added; /* out: what there is to say of the objects */
	/* Internal. */
	const struct tsr_stored_tensor **older;
	struct tsr_block_job *jobs;
	size_t njobs;
	struct tsr_store_sums sums;
};

/* Code all blocks: objects, errors, depth and needs of @e->to. */
enum tsr_status tsr_encode_blocks(struct tsr_encoding *e, const struct tsr_run *run,
				  struct tsr_err *err);

/* The tensor of a snapshot with the name, chunk and elements of @t, or NULL: for many tensors at once. */
enum tsr_status tsr_match_tensors(const struct tsr_snapshot *in, const struct tsr_snapshot *of,
				  const struct tsr_stored_tensor ***ret, struct tsr_err *err);

#endif
