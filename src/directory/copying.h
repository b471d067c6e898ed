/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a directory: opened, copied and hashed. */
#ifndef TSR_DIRECTORY_COPYING_H
#define TSR_DIRECTORY_COPYING_H

#include "directory/traversal.h"

/* Open a file below the directory @root: a link only if the traversal allows it, and none in its output. */
enum tsr_status tsr_open_below(struct tsr_traversal *t, const char *root, const char *name,
			       struct tsr_file **ret);

/* Whether its content shows that it can hold tensors. */
enum tsr_status tsr_probe_below(struct tsr_traversal *t, const char *root, const char *name,
				bool *ret);

/* Read all of the file, write it to @to unless that is NULL, and hash it. */
enum tsr_status tsr_copy_file(struct tsr_traversal *t, const char *root, const char *name,
			      const char *to, struct tsr_stored_file *ret);

/* Write a file that fits into memory. */
enum tsr_status tsr_write_text(struct tsr_traversal *t, const char *to, bool force,
			       const struct tsr_text *text);

/* Whether a copy in a packed directory has the size and hash of its entry: TSR_E_FORMAT if not. */
enum tsr_status tsr_check_copy(struct tsr_traversal *t, const struct tsr_directory_entry *e,
			       const struct tsr_stored_file *found);

/* The size of a packed file, and the hash of its safetensors header. */
enum tsr_status tsr_hash_header(struct tsr_traversal *t, const char *root, const char *name,
				struct tsr_stored_file *ret);

#endif
