/* SPDX-License-Identifier: Apache-2.0 */
/* The total_size in copies of Hugging Face indices: narrow weights take fewer bytes than the source's. */
#ifndef TSR_DIRECTORY_SHARD_TOTAL_H
#define TSR_DIRECTORY_SHARD_TOTAL_H

#include "directory/copying.h"

/* Copies with these names are indices of shards; digits of a total. */
#define TSR_SHARD_INDEX_SUFFIX ".index.json"
#define TSR_TOTAL_DIGITS_MAX 20u

/*
 * In the target, whose files are written, correct the total of each copied index some of whose shards are
 * stored with narrow weights.  The entry has what was there.
 */
enum tsr_status tsr_correct_totals(struct tsr_traversal *t);

/* tsr_copy_file() of a copy in the packed directory @root, with the total that the source has. */
enum tsr_status tsr_copy_original(struct tsr_traversal *t, const char *root,
				  const struct tsr_directory_entry *e, const char *to,
				  struct tsr_stored_file *ret);

#endif
