/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that packing or unpacking one makes. */
#ifndef TSR_DIRECTORY_DIR_TARGET_H
#define TSR_DIRECTORY_DIR_TARGET_H

#include "directory/traversal.h"
#include "io/atomic_dir.h"

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
