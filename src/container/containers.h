/* SPDX-License-Identifier: Apache-2.0 */
/* The readers of the containers; each adds what one input holds to a checkpoint. */
#ifndef TSR_CONTAINER_CONTAINERS_H
#define TSR_CONTAINER_CONTAINERS_H

#include "ckpt/build.h"

/* A safetensors file, packed or not; takes over @f. */
enum tsr_status tsr_read_safetensors(struct tsr_checkpoint *c, struct tsr_file *f,
				     struct tsr_err *err);

/* A file of torch.save; takes over @f. */
enum tsr_status tsr_read_torch(struct tsr_checkpoint *c, struct tsr_file *f, struct tsr_err *err);

/* An .npz archive or one .npy array, which is called as its file; take over @f. */
enum tsr_status tsr_read_npz(struct tsr_checkpoint *c, struct tsr_file *f, enum tsr_dtype as,
			     struct tsr_err *err);
enum tsr_status tsr_read_npy(struct tsr_checkpoint *c, struct tsr_file *f, enum tsr_dtype as,
			     struct tsr_err *err);

/* Every shard that an index names; takes over @f. */
enum tsr_status tsr_read_sharded(struct tsr_checkpoint *c, struct tsr_file *f,
				 const struct tsr_open_options *options, struct tsr_err *err);

/* A file of any of these kinds, told by its content, an index only if @index_too; takes over @f. */
enum tsr_status tsr_read_file(struct tsr_checkpoint *c, struct tsr_file *f, bool index_too,
			      const struct tsr_open_options *options, struct tsr_err *err);

/* Turn the entry or array that keeps a tree back into one; see container/tree.h. */
enum tsr_status tsr_tree_restore(struct tsr_checkpoint *c, struct tsr_err *err);

#endif
