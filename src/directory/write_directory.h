/* SPDX-License-Identifier: Apache-2.0 */
/* Making a directory from another, entry by entry: packed, unpacked or recoded. */
#ifndef TSR_DIRECTORY_WRITE_DIRECTORY_H
#define TSR_DIRECTORY_WRITE_DIRECTORY_H

#include "directory/traversal.h"

/* Copy the file of an entry to the target; of a packed directory as the source has it, and checked. */
enum tsr_status tsr_directory_copy(struct tsr_traversal *t, struct tsr_directory_entry *e);

/* Make what @t->output says from the directory @path. */
enum tsr_status tsr_directory_make(struct tsr_traversal *t, const char *path,
				   const struct tsr_directory_watch *watch,
				   const struct tsr_run *run, struct tsr_directory **ret,
				   struct tsr_err *err);

#endif
