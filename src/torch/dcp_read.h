/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the reader of torch.distributed.checkpoint directories. */
#ifndef TSR_TORCH_DCP_READ_H
#define TSR_TORCH_DCP_READ_H

#include "base/scope.h"
#include "torch/dcp_metadata.h"

/* How many numbers may be compared to see whether chunks overlap: some, and some for each chunk. */
#define TSR_DCP_COMPARED_FREE (UINT64_C(1) << 22)
#define TSR_DCP_COMPARED_PER_CHUNK 256u

/* A directory being read. */
struct tsr_dcp_reading {
	struct tsr_checkpoint *c;
	const char *directory, *path; /* path: of .metadata */
	bool follow; /* links */
	struct tsr_dcp_metadata m;
	struct tsr_value *unread; /* DICT: entries of which only the bytes are carried */
	uint64_t ncomparisons; /* that are left */
	struct tsr_err *err;
};

/* Fail with "DIRECTORY/.metadata: FQN: " before the message. */
#define TSR_DCP_FAIL(r, code, fqn, ...) tsr_fail_in((r)->err, code, (r)->path, "", fqn, __VA_ARGS__)

/* The start of a message about a part: "DIRECTORY/FILE: FQN"; NULL when out of memory. */
char *tsr_dcp_where(const struct tsr_dcp_reading *r, const struct tsr_dcp_part *p);

enum tsr_dcp_overlap { TSR_DCP_DISJOINT, TSR_DCP_OVERLAP, TSR_DCP_OVER_LIMIT };

/*
 * Whether any two boxes have an element in common; each must have some.  Changes their order.
 * @left: how many numbers may be compared, and then how many are left
 */
enum tsr_dcp_overlap tsr_dcp_boxes_check(struct tsr_dcp_box *boxes, size_t n, unsigned rank,
					 uint64_t *left);

/* Put a tensor together from its chunks and add it as an array. */
enum tsr_status tsr_dcp_read_tensor(struct tsr_dcp_reading *r, const struct tsr_dcp_entry *e,
				    size_t *array_ret);

/* Values by the paths that lead to them. */
struct tsr_dcp_tree;

/* NULL when out of memory. */
struct tsr_dcp_tree *tsr_dcp_tree_new(struct tsr_arena *arena);
void tsr_dcp_tree_free(struct tsr_dcp_tree *t);
TSR_OWNED_BY(tsr_dcp_tree_free, struct tsr_dcp_tree)

/* Put the value of an entry where its path says, or under its name if it has none. */
enum tsr_status tsr_dcp_tree_put(struct tsr_dcp_tree *t, struct tsr_dcp_reading *r,
				 const struct tsr_dcp_entry *e, struct tsr_value *v);

/* The root; places in lists to which nothing was put are None. */
enum tsr_status tsr_dcp_tree_finish(struct tsr_dcp_tree *t, struct tsr_dcp_reading *r,
				    struct tsr_value **ret);

#endif
