/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a directory of torch.distributed.checkpoint: its entries, their archives and .metadata. */
#ifndef TSR_TORCH_DCP_WRITE_H
#define TSR_TORCH_DCP_WRITE_H

#include "format/pickle.h"
#include "format/zip_members.h"
#include "torch/dcp.h"
#include "torch/dcp_metadata.h"
#include "torch/torch_write.h"

/* An entry and where it is stored. */
struct tsr_dcp_item {
	const char *fqn;
	const struct tsr_value
		*path; /* the keys: a TUPLE of strings, and ints for places of lists; or NULL */
	const struct tsr_value *value; /* a TENSOR, or anything else, which is pickled */
	bool unread; /* the data of the TENSOR is the bytes of an object */
	const struct tsr_tensor *tensor; /* that the value is, or NULL; set with its archive */
	uint64_t nbytes; /* of its archive */
	size_t file; /* the caller says where it is: __0_FILE.distcp */
	uint64_t offset;
};

/* All that a directory holds. */
struct tsr_dcp_items {
	struct tsr_checkpoint *c;
	const char *path; /* of the output, for messages */
	size_t n;
	struct tsr_dcp_item *items;
	struct tsr_value *mcore_data; /* of Megatron's Metadata, or NULL */
	size_t nattributed; /* tensors with attributes, which are left out */
	size_t nempty; /* dicts without items, which have no place */
	size_t nnumbered; /* keys that were ints and are strings now */
};

/**
 * tsr_dcp_flatten() - What torch.distributed.checkpoint makes of a checkpoint
 * @root: NULL, or a value that takes the place of the whole checkpoint
 * @items: filled; free its `items`, also on failure
 *
 * As dcp.save() flattens a state dict since PyTorch 2.4: keys of dicts and places of those lists that
 * hold tensors or dicts are joined with dots, every other value is one Python object.  A root with
 * TSR_DCP_ATTRIBUTE has the entries that this attribute lists, and the items to which no listed path
 * leads are one entry each.  Several dicts are joined, and tensors that are in none stand at the top
 * under their names.
 *
 * Return: TSR_OK; TSR_E_UNSUPPORTED for what has no place there: a root that is no dict, two entries of
 * one name, keys that are no text or ints; TSR_E_LIMIT; TSR_E_NOMEM.
 */
enum tsr_status tsr_dcp_flatten(struct tsr_checkpoint *c, struct tsr_value *root, const char *path,
				struct tsr_dcp_items *items, struct tsr_err *err);

/* What the archives of all items have in common. */
struct tsr_dcp_archiving {
	struct tsr_checkpoint *c;
	const char *path;
	struct tsr_pickle_tensor *tensors; /* per array */
	size_t *tensor_of; /* per array: the tensor that it is */
	size_t *last; /* per array: 1 + the item that had it last */
	size_t n; /* tensors of the current item, one if it is unread */
	size_t *found;
};

/* Free with tsr_dcp_archiving_free(), also on failure. */
enum tsr_status tsr_dcp_archiving_init(struct tsr_dcp_archiving *a,
				       const struct tsr_dcp_items *items, struct tsr_err *err);
void tsr_dcp_archiving_free(struct tsr_dcp_archiving *a);

/*
 * The members of the archive of item number @i, laid out; its size is set.  The data of tensor
 * a->found[k] is member TSR_DCP_DATA_MEMBER + k.  An unread item has no members.  @generation: lossy
 * generations, noted if not 0.
 */
#define TSR_DCP_DATA_MEMBER TSR_TORCH_DATA_MEMBER
enum tsr_status tsr_dcp_archive(struct tsr_dcp_archiving *a, struct tsr_dcp_items *items, size_t i,
				unsigned generation, struct tsr_zip_members *ret,
				struct tsr_err *err);

/* The name of a data file by its number. */
#define TSR_DCP_FILE_NAME "__0_%zu.distcp"

/* Append the contents of .metadata, once all items have their place. */
enum tsr_status tsr_dcp_compose_metadata(const struct tsr_dcp_items *items, struct tsr_text *out,
					 struct tsr_err *err);

#endif
