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

#endif
