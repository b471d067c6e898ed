/* SPDX-License-Identifier: Apache-2.0 */
/* An output in the shards that a model has already. */
#ifndef TSR_CONTAINER_SHARDS_SHARD_KEEP_H
#define TSR_CONTAINER_SHARDS_SHARD_KEEP_H

#include "container/shards/shard_cut.h"

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
