/* SPDX-License-Identifier: Apache-2.0 */
/* Making a directory from another, entry by entry: packed, unpacked or recoded. */
#ifndef TSR_DIRECTORY_WRITE_DIRECTORY_H
#define TSR_DIRECTORY_WRITE_DIRECTORY_H

#include "directory/traversal.h"
#include "io/atomic_dir.h"

/* Copy the file of an entry to the target; of a packed directory as the source has it, and checked. */
enum tsr_status tsr_directory_copy(struct tsr_traversal *t, struct tsr_directory_entry *e);

/* Make what @t->output says from the directory @path. */
enum tsr_status tsr_directory_make(struct tsr_traversal *t, const char *path,
				   const struct tsr_directory_watch *watch,
				   const struct tsr_run *run, struct tsr_directory **ret,
				   struct tsr_err *err);

/* --- The directory that packing or unpacking one makes ---------------------------------------- */

/* Whether the directory can be made: it is apart from what is read, and there is room. */
enum tsr_status tsr_dir_check_target(const struct tsr_traversal *t, uint64_t nbytes);

/* Start it, for the entries that there are.  Only its owner can look into it before it is published. */
enum tsr_status tsr_dir_start(struct tsr_traversal *t, struct tsr_outdir **ret);

/*
 * End it: publish it with the permissions of the entries, or remove it if @status is not TSR_OK, which is
 * then returned.  In parts it stays then, unless it is known that it is of no use.
 */
enum tsr_status tsr_dir_end(struct tsr_traversal *t, struct tsr_outdir *made,
			    enum tsr_status status);

#endif
