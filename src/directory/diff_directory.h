/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what is beside the checkpoints in two directories. */
#ifndef TSR_DIRECTORY_DIFF_DIRECTORY_H
#define TSR_DIRECTORY_DIFF_DIRECTORY_H

#include "compare/comparison.h"
#include "tersor/directory.h"

/*
 * The same as tsr_diff_directory() of the files that opening the directories as the checkpoints of @c did not
 * read, such as config.json: by their bytes.
 */
enum tsr_status tsr_diff_not_read(const struct tsr_comparison *c, const char *a, const char *b,
				  const struct tsr_diff_options *options,
				  struct tsr_directory **ret, struct tsr_err *err);

#endif
