/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a directory of torch.distributed.checkpoint. */
#ifndef TSR_TORCH_DCP_H
#define TSR_TORCH_DCP_H

#include "ckpt/build.h"

/*
 * The attribute of a root, which is an OrderedDict then, that keeps what its items do not show: a DICT
 * of the members planner_data (paths by names of entries, or None) and mcore_data of .metadata, and
 * `unread`: entries that are not among the items, by their names, with their bytes as tensors.
 */
#define TSR_DCP_ATTRIBUTE "_dcp_metadata"

/* What this attribute of a root says, or NULL. */
const struct tsr_value *tsr_dcp_attribute(const struct tsr_value *root);

/* Whether a directory holds a checkpoint of torch.distributed.checkpoint, finished or not. */
bool tsr_dcp_looks_like(const char *directory);

/**
 * tsr_dcp_read_links() - Read a directory of torch.distributed.checkpoint
 * @c: gets every tensor, put together from its chunks, as an array with the flattened name, and one
 *     tree with the nesting that was saved (planner_data), or flat where that is not known
 *
 * Keys of dicts are strings, as flattening made them; places of lists where nothing was saved are
 * None.  What was saved as a Python object is read as tsr_torch_read() does it.  Of one that is not
 * supported the bytes are carried, and a note says so with its name; it is left out if the policy is to
 * drop what is not plain.
 * Every chunk is there once, chunks neither overlap nor leave a gap, nothing is stored that no
 * tensor has, and what is stored has the types and shapes that .metadata says.  Data is not read
 * yet, so checksums are not checked; they are in the arrays and chunks.
 *
 * Files are regular files of the directory itself; links are refused unless @follow.  Data in other
 * forms than archives of torch.save (safetensors, transformed) is refused.
 *
 * Return: TSR_OK, TSR_E_FORMAT, TSR_E_UNSUPPORTED, TSR_E_LIMIT, TSR_E_IO or TSR_E_NOMEM.
 */
enum tsr_status tsr_dcp_read_links(struct tsr_checkpoint *c, const char *directory, bool follow,
				   struct tsr_err *err);

#endif
