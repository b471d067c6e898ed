/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint on disk consists of: its files, and where the tensors are in them. */
#ifndef TSR_STORE_SOURCES_H
#define TSR_STORE_SOURCES_H

#include "io/node_list.h"
#include "store/store_data.h"

/* A checkpoint that is being added. */
struct tsr_store_source {
	const char *path;
	bool is_file, follow;
	char *directory; /* that the files are below */
	struct tsr_nodes nodes; /* in the order of the snapshot's paths */
};

/*
 * List the files of the checkpoint @path and find its tensors: all of @ret but its objects.  A checkpoint
 * whose tensors cannot be found has none, and @note says why; "" otherwise.
 */
enum tsr_status tsr_source_open(struct tsr_store_source *source, const char *path, bool follow,
				struct tsr_arena *arena, struct tsr_snapshot *ret,
				char note[TSR_ERR_MAX], struct tsr_err *err);
void tsr_source_close(struct tsr_store_source *source);

/* @nbytes of file number @file from @offset on.  Thread-safe. */
enum tsr_status tsr_source_read(const struct tsr_store_source *source, size_t file, void *bytes,
				size_t nbytes, uint64_t offset, struct tsr_err *err);

/* @nbytes of what no tensor has of file number @file, from byte @at of that on. */
enum tsr_status tsr_source_read_rest(const struct tsr_store_source *source,
				     const struct tsr_snapshot *s, size_t file, uint8_t *bytes,
				     size_t nbytes, uint64_t at, struct tsr_err *err);

/* TSR_E_IO if a file changed since it was listed. */
enum tsr_status tsr_source_check_unchanged(const struct tsr_store_source *source,
					   struct tsr_err *err);

#endif
