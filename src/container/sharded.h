/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint in shards and their index, as the Hugging Face libraries write it. */
#ifndef TSR_CONTAINER_SHARDED_H
#define TSR_CONTAINER_SHARDED_H

#include "ckpt/build.h"

/* Whether a file looks like an index. */
enum tsr_status tsr_sharded_detect(const struct tsr_file *f, bool *is_ret, struct tsr_err *err);

/* Read every shard that an index names; takes ownership of @f. */
enum tsr_status tsr_sharded_read(struct tsr_checkpoint *c, struct tsr_file *f,
				 const struct tsr_open_options *options, struct tsr_err *err);

#endif
