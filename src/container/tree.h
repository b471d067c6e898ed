/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was saved around the tensors.  A safetensors file keeps it as a pickle of its own, in which the
 * storage of each tensor has the tensor's name as its key: as base64 in the metadata entry
 * `tersor_tree`, or as the bytes of a U8 tensor `tersor::tree` if it is long.
 */
#ifndef TSR_CONTAINER_TREE_H
#define TSR_CONTAINER_TREE_H

#include "ckpt/build.h"

#define TSR_TREE_KEY "tersor_tree"
#define TSR_TREE_TENSOR "tersor::tree"

/* The longest pickle that goes into the metadata. */
#define TSR_TREE_META_MAX (64u << 10)

/* Put the tree of a checkpoint where a safetensors file keeps it: metadata, or one more tensor. */
enum tsr_status tsr_tree_attach(struct tsr_checkpoint *c, struct tsr_err *err);

/* Make the entry or tensor that keeps a tree a tree of the checkpoint again. */
enum tsr_status tsr_tree_restore(struct tsr_checkpoint *c, struct tsr_err *err);

/*
 * Give tensors that no tree reaches a place in one, if there are any trees: as `model` beside the one
 * optimizer, or else as a flat mapping before the other trees.  So whoever loads a .pt sees them all.
 * Unless several inputs were @joined, it is worth a note.
 */
enum tsr_status tsr_tree_complete(struct tsr_checkpoint *c, bool joined, struct tsr_err *err);

#endif
