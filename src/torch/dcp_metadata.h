/* SPDX-License-Identifier: Apache-2.0 */
/* What the .metadata of a torch.distributed.checkpoint directory says; for its reader only. */
#ifndef TSR_TORCH_DCP_METADATA_H
#define TSR_TORCH_DCP_METADATA_H

#include "ckpt/build.h"

#define TSR_DCP_METADATA_MAX (UINT64_C(256) << 20)
#define TSR_DCP_FILES_MAX 65536u
#define TSR_DCP_CHUNKS_MAX 65536u /* of one tensor */

/* A box of a tensor; as many numbers as it has dimensions. */
struct tsr_dcp_box {
	const uint64_t *start, *size;
};

/* A tensor, or what was saved as a Python object, by its flattened name. */
struct tsr_dcp_entry {
	const char *fqn;
	size_t name; /* the number of its name, and of the entry: that of parts with the same */
	const struct tsr_value
		*path; /* a tuple of the keys and list indices that lead to it, or NULL */
	bool bytes; /* a Python object: nothing below is set */
	enum tsr_dtype dtype;
	unsigned rank;
	const uint64_t *shape;
	size_t nboxes;
	struct tsr_dcp_box *boxes;
};

/* Where a part of an entry is stored: one archive of torch.save. */
struct tsr_dcp_part {
	const char *fqn;
	size_t name;
	bool has_start; /* not of a Python object */
	unsigned rank;
	const uint64_t *start; /* of the box that it is */
	const char *file; /* a plain name */
	uint64_t offset, nbytes;
	unsigned index; /* of the file; for the caller */
	bool used; /* for the caller */
};

struct tsr_dcp_metadata {
	struct tsr_arena *arena; /* of all that is here */
	size_t nentries;
	struct tsr_dcp_entry *entries; /* in the order of the file; names differ */
	size_t nparts;
	struct tsr_dcp_part *parts; /* sorted by number of name, and start, which differ */
	struct tsr_value *planner_data, *mcore_data; /* as they are, or NULL */
};

/* Whether a value is a path: a TUPLE of 1 to 200 strings and list indices. */
bool tsr_dcp_is_path(const struct tsr_value *v);

/**
 * tsr_dcp_metadata_read() - Read and check a .metadata file
 * @ret: out: to be freed with tsr_dcp_metadata_free()
 *
 * Checks all that can be checked without the data: forms, names, sizes, that file names are not paths.  Any
 * class outside of torch.distributed that is not harmless is refused by name.
 */
enum tsr_status tsr_dcp_metadata_read(const struct tsr_file *f, struct tsr_dcp_metadata *ret,
				      struct tsr_err *err);
void tsr_dcp_metadata_free(struct tsr_dcp_metadata *m);

/* The part of an entry that starts at @start (NULL: of a Python object), or NULL. */
struct tsr_dcp_part *tsr_dcp_find_part(const struct tsr_dcp_metadata *m,
				       const struct tsr_dcp_entry *e, const uint64_t *start);

#endif
