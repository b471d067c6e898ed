/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a .pt file: the pickle of what was saved, and the archive that torch.save makes of it. */
#ifndef TSR_TORCH_TORCH_WRITE_H
#define TSR_TORCH_TORCH_WRITE_H

#include "ckpt/build.h"
#include "format/pickle.h"
#include "format/zip_members.h"

/*
 * The one value that stands for all trees of a checkpoint: the tree, the union of flat mappings
 * (shards), or a list of the trees.  NULL with TSR_OK if there is none.
 */
enum tsr_status tsr_torch_root(struct tsr_checkpoint *c, struct tsr_value **ret,
			       struct tsr_err *err);

/* Whether a value is a mapping of nothing but tensors. */
bool tsr_torch_is_flat(const struct tsr_value *v);

/* A value as a pickle, in which the storage of tensor number i has the key @keys[i]. */
enum tsr_status tsr_torch_pickle(struct tsr_checkpoint *c, const struct tsr_value *root,
				 const char *const *keys, struct tsr_text *out,
				 struct tsr_err *err);

/*
 * *ret: the tensors in torch's terms, by the array that TENSOR values refer to; to be freed.  Tensor
 * number i has the key @keys[i], or with NULL none.
 */
enum tsr_status tsr_torch_describe(const struct tsr_checkpoint *c, const char *const *keys,
				   struct tsr_pickle_tensor **ret, struct tsr_err *err);

/*
 * The members of an archive in PyTorch's order: @root, the storages of @n tensors by their numbers in the
 * list, of which the first is member TSR_TORCH_DATA_MEMBER, and the version.  @generation: lossy generations,
 * noted if not 0.
 */
#define TSR_TORCH_DATA_MEMBER 2u
enum tsr_status tsr_torch_add_archive(const struct tsr_checkpoint *c, const struct tsr_value *root,
				      struct tsr_pickle_tensor *tensors, const size_t *list,
				      size_t n, unsigned generation, const char *path,
				      struct tsr_zip_members *m, struct tsr_err *err);

/*
 * The members of an archive with all tensors, and what was saved around them or else a flat mapping.
 * *member_ret: per tensor its member, to be freed, also on failure.  @generation: lossy generations.
 */
enum tsr_status tsr_torch_write_members(struct tsr_checkpoint *c, unsigned generation,
					struct tsr_zip_members *m, size_t **member_ret,
					const char *path, struct tsr_err *err);

#endif
