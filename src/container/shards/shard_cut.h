/* SPDX-License-Identifier: Apache-2.0 */
/* Where the arrays of a safetensors output are cut into files. */
#ifndef TSR_CONTAINER_SHARDS_SHARD_CUT_H
#define TSR_CONTAINER_SHARDS_SHARD_CUT_H

#include "container/writer_layout.h"

/* The arrays of the files: file i has those from ends[i - 1], or 0, to ends[i] - 1. */
struct tsr_shard_cuts {
	size_t nfiles; /* one at least */
	size_t *ends; /* to be freed */
	bool by_header; /* some file ends where it does since its header would pass a limit of readers */
};

/*
 * Cut the arrays of the plan, which are in their order, from sizes alone.  A file takes tensors, with all
 * their planes, until the next one would be too much: data over the plan's size, or a header that readers
 * refuse for its bytes or its number of JSON values.
 */
enum tsr_status tsr_shards_cut(const struct tsr_writer *w, struct tsr_shard_cuts *ret,
			       struct tsr_err *err);

/* --- An output in the shards that a model has already ----------------------------------------- */

/* Whether a checkpoint is a plain model in safetensors shards, opened by their index. */
bool tsr_shards_are(const struct tsr_checkpoint *c);

/* Whether all its shards are named after its index, so that no other model has them: NAME-*. */
bool tsr_shards_are_own(const struct tsr_checkpoint *c);

/*
 * Put the arrays into the order of the shards that plan.like has them in, and plan the files: in a directory
 * under the same names, else beside plan.path under new ones.  An array that it has not goes with the one
 * before; a shard of which nothing is left is left out.
 */
enum tsr_status tsr_shards_keep(struct tsr_writer *w, struct tsr_shard_cuts *ret,
				struct tsr_err *err);

#endif
