/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was saved around the tensors.  A safetensors file keeps it as a pickle of its own, in which
 * the storage of each tensor is called by the tensor's name: as base64 in the metadata entry
 * `tersor_tree`, or if it is long as the bytes of a U8 tensor `tersor::tree`.
 */
#ifndef TSR_CKPT_TREE_H
#define TSR_CKPT_TREE_H

#include "text/text.h"
#include "ckpt/build.h"

#define TSR_TREE_KEY "tersor_tree"
#define TSR_TREE_TENSOR "tersor::tree"

/* The longest pickle that goes into the metadata. */
#define TSR_TREE_META_MAX (64u << 10)

/*
 * The one value that stands for all trees of a checkpoint: the tree, the union of flat mappings
 * (shards), or a list of the trees.  NULL with TSR_OK if there is none.
 */
enum tsr_status tsr_tree_root(struct tsr_checkpoint *c, struct tsr_value **ret,
			      struct tsr_err *err);

/*
 * The numbers of all tensors, in the order in which the tree reaches them; those that it does not
 * reach come last.  @order has room for all.
 */
enum tsr_status tsr_tree_order(struct tsr_checkpoint *c, size_t *order, struct tsr_err *err);

/* Put the tree of a checkpoint where a safetensors file keeps it: metadata, or one more tensor. */
enum tsr_status tsr_tree_attach(struct tsr_checkpoint *c, struct tsr_err *err);

/*
 * A checkpoint's tree as the data.pkl of torch.save, in which the storage of tensor number i is
 * called @keys[i]; a flat mapping of all tensors where there is no tree.
 */
enum tsr_status tsr_tree_compose(struct tsr_checkpoint *c, const char *const *keys,
				 struct tsr_text *out, struct tsr_err *err);

#endif
