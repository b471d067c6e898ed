/* SPDX-License-Identifier: Apache-2.0 */
/* Deltas of directories: each packed file differs from that of the same name in another packed directory. */
#ifndef TSR_DIRECTORY_BASES_H
#define TSR_DIRECTORY_BASES_H

#include "directory/traversal.h"

/* Open the directory that @t->delta names, if any, and refuse one that the output would replace. */
enum tsr_status tsr_bases_open(struct tsr_traversal *t);

/*
 * The base of an entry's packed file, for tsr_pack() and tsr_recode(): its path, which lives until the next
 * entry, and the levels of directories that are part of its name.  It is the file of the same name, or the
 * only one whose path has other numbers in one of its names.  NULL if that directory has none.
 */
enum tsr_status tsr_bases_find(struct tsr_traversal *t, const struct tsr_directory_entry *e,
			       const char **path, unsigned *levels);

#endif
