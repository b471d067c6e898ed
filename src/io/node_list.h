/* SPDX-License-Identifier: Apache-2.0 */
/* Everything below a directory, listed. */
#ifndef TSR_IO_NODE_LIST_H
#define TSR_IO_NODE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/status.h"

/* Limits on what is below a directory: entries, directories in each other, bytes of a path. */
#define TSR_NODES_MAX 100000u
#define TSR_NODES_DEPTH_MAX 64u
#define TSR_NODE_PATH_MAX 3800u

/* A regular file or a directory. */
struct tsr_node {
	char *path; /* below the directory that was listed */
	bool is_directory;
	unsigned mode; /* permissions, at most 0777 */
	uint64_t nbytes; /* of a file */
	/* Of a file: what tells that it was modified or replaced. */
	uint64_t device, inode;
	int64_t mtime_s, mtime_ns;
};

/* Sorted by path, as strcmp() does: a directory is before what is in it. */
struct tsr_nodes {
	struct tsr_node *list;
	size_t n;
};

/*
 * List a directory and all directories in it.  A symbolic link is refused; with @follow one to a file
 * is taken for the file.  TSR_E_UNSUPPORTED for a FIFO, socket or device; TSR_E_LIMIT; TSR_E_IO.
 */
enum tsr_status tsr_nodes_list(const char *directory, bool follow, struct tsr_nodes *ret,
			       struct tsr_err *err);
void tsr_nodes_free(struct tsr_nodes *nodes);

/* Whether the directory has the same files as when it was listed: TSR_E_IO with the first that changed. */
enum tsr_status tsr_nodes_check_unchanged(const struct tsr_nodes *nodes, const char *directory,
					  bool follow, struct tsr_err *err);

/* The permissions of one path, at most 0777. */
enum tsr_status tsr_node_mode(const char *path, unsigned *ret, struct tsr_err *err);

/* The node with this path, or NULL. */
const struct tsr_node *tsr_nodes_find(const struct tsr_nodes *nodes, const char *path);

#endif
