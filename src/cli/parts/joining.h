/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command whose parts are joined. */
#ifndef TSR_CLI_PARTS_JOINING_H
#define TSR_CLI_PARTS_JOINING_H

#include "cli/cli.h"
#include "parts/part.h"

/*
 * Join the parts of @path by running their command in this process, with the threads and progress of
 * @common; then remove what they left.  Returns that command's exit status.
 */
int cli_join(const char *path, const struct cli_common *common);

/* The same of @n reports in memory, in the order of the parts. */
int cli_join_texts(const char *path, const struct tsr_text *reports, unsigned n,
		   const struct cli_common *common);

#endif
