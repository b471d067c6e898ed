/* SPDX-License-Identifier: Apache-2.0 */
/* Making a directory from another, entry by entry: packed, unpacked or recoded. */
#ifndef TSR_DIRECTORY_WRITE_DIRECTORY_H
#define TSR_DIRECTORY_WRITE_DIRECTORY_H

#include "directory/traversal.h"

/* Copy the file of an entry to the target; of a packed directory as the source has it, and checked. */
enum tsr_status tsr_directory_copy(struct tsr_traversal *t, struct tsr_directory_entry *e);

/*
 * Write a directory.  @plan decides what becomes of each entry; NULL: what it is, once all stored files are
 * found to be there.  @write makes the files of an entry that is packed.
 */
enum tsr_status tsr_directory_write(struct tsr_traversal *t, const struct tsr_dir_output *o,
				    const struct tsr_run *run,
				    enum tsr_status (*plan)(struct tsr_traversal *t),
				    tsr_visit *write);

#endif
