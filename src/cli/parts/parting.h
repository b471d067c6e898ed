/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in parts: --part, and what `join` runs. */
#ifndef TSR_CLI_PARTS_PARTING_H
#define TSR_CLI_PARTS_PARTING_H

#include "cli/cli.h"
#include "parts/part.h"

/* What the command that runs does in parts; NULL: it does all of its work. */
struct tsr_parts *cli_parts(void);

/* Do that in the next command; borrowed. */
void cli_set_parts(struct tsr_parts *parts);

/*
 * Before a command runs: what --part asks for.  *done_ret: --continue found it done, so there is nothing to
 * run.  CLI_OK, or the exit status after a message.
 */
int cli_part_begin(const struct cli_cmd *cmd, const struct cli_opts *all, const void *args,
		   bool *done_ret);

/* Write the report of a part that has found its share of the figures, and has no more to do.  Exit status. */
int cli_part_write(void);

/* After it: what to say of a part that is done.  Returns the exit status. */
int cli_part_end(const struct cli_common *common, int status);

/* CLI_USAGE after a message if parts are asked for, of @what, which has none; else CLI_OK. */
int cli_part_refuse(const struct cli_cmd *cmd, const char *what);

/* --- Running a command whose parts are joined ------------------------------------------------ */

/*
 * Join the parts of @path by running their command in this process, with the threads and progress of
 * @common; then remove what they left.  @reports: @n reports in memory, in the order of the parts; NULL: they
 * are in files.  Returns that command's exit status.
 */
int cli_join(const char *path, const struct tsr_text *reports, unsigned n,
	     const struct cli_common *common);

#endif
