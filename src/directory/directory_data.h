/* SPDX-License-Identifier: Apache-2.0 */
/* A packed directory in memory, and its index file. */
#ifndef TSR_DIRECTORY_DIRECTORY_DATA_H
#define TSR_DIRECTORY_DIRECTORY_DATA_H

#include "base/arena.h"
#include "base/scope.h"
#include "io/node_list.h"
#include "pack/packing.h"
#include "tersor/directory.h"
#include "text/named.h"

/* Limits on an index: its text, the JSON values in it, the files of an entry, a reason. */
#define TSR_DIRECTORY_INDEX_NBYTES_MAX (UINT64_C(64) << 20)
#define TSR_DIRECTORY_VALUES_MAX 4000000u
#define TSR_DIRECTORY_STORED_MAX 2u
#define TSR_DIRECTORY_REASON_MAX 1024u

/* Sorted by path. */
struct tsr_directory {
	struct tsr_arena *arena;
	const char *path;
	struct tsr_directory_entry *entries;
	size_t n;
	unsigned mode; /* permissions of the directory itself */
	uint64_t index_nbytes;
	size_t nfaults;
	const char *remark;
};

/* An empty one, with room for @n entries. */
enum tsr_status tsr_directory_new(const char *path, size_t n, struct tsr_directory **ret,
				  struct tsr_err *err);

/* Everything below a directory, each file as if it were a copy; @nodes, to be freed, have the same order. */
enum tsr_status tsr_directory_list(const char *path, bool follow, struct tsr_nodes *nodes,
				   struct tsr_directory **ret, struct tsr_err *err);

/* Add an entry for a node, for which there is room. */
enum tsr_status tsr_directory_add(struct tsr_directory *d, const struct tsr_node *node,
				  struct tsr_err *err);

/* The failure of an allocation from its arena. */
enum tsr_status tsr_directory_nomem(const struct tsr_directory *d, struct tsr_err *err);

/* The entry with this path, or NULL. */
struct tsr_directory_entry *tsr_directory_find(const struct tsr_directory *d, const char *path);

/* The names of all files and directories that it knows, sorted, to be freed; NULL when out of memory. */
struct tsr_named *tsr_directory_known(const struct tsr_directory *d, size_t *n_ret);

/* Have the remark name entries that are in it and not in its index: they are in no output. */
enum tsr_status tsr_directory_remark_others(struct tsr_directory *d, bool follow,
					    struct tsr_err *err);

/* Whether a path below a directory can be in an index: names without special meaning, in UTF-8. */
bool tsr_directory_path_is_valid(const char *path);

/* Refuse a directory with another path, by name. */
enum tsr_status tsr_directory_check_paths(const struct tsr_directory *d, struct tsr_err *err);

/* --- Checkpoints of torch.distributed.checkpoint ---------------------------------------------- */

/*
 * Such a directory is one checkpoint.  The entry of its .metadata, with the container DCP, stands for it
 * and is packed into this file of the directory; its *.distcp files are parts of it.
 */
#define TSR_DIRECTORY_DCP "dcp.tersor"
#define TSR_DIRECTORY_METADATA ".metadata"

/* Whether a path is that of a part of the checkpoint with this .metadata. */
bool tsr_directory_is_part(const struct tsr_directory_entry *metadata, const char *path);

/* The .metadata in the directory of an entry, or NULL. */
struct tsr_directory_entry *tsr_directory_metadata_of(struct tsr_directory *d,
						      const struct tsr_directory_entry *e);

/* Find such checkpoints: each .metadata with a *.distcp file beside it is one, and those are its parts. */
void tsr_directory_find_parts(struct tsr_directory *d);

/* The path of the file @name in the directory of an entry; NULL when out of memory. */
const char *tsr_directory_beside(struct tsr_directory *d, const struct tsr_directory_entry *e,
				 const char *name);

/* --- The index file --------------------------------------------------------------------------- */

/* Write the index of what a traversal worked on; sets its index_nbytes. */
struct tsr_traversal;
enum tsr_status tsr_directory_write_index(struct tsr_traversal *t, const char *path);

/* Bytes that the index will have. */
enum tsr_status tsr_directory_measure_index(struct tsr_directory *d, struct tsr_err *err);

TSR_OWNED_BY(tsr_directory_close, struct tsr_directory)

/* What writing and reading the index of a packed directory share (docs/internals/format.md). */

#define TSR_INDEX_VERSION 1u

/* Digits of a hash, what they are while the text is hashed, and what ends the text behind them. */
#define TSR_INDEX_HEX 16u
#define TSR_INDEX_ZEROS "0000000000000000"
#define TSR_INDEX_END "\"}\n"

#endif
