/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command whose parts are joined. */
#ifndef TSR_CLI_PARTS_JOINING_H
#define TSR_CLI_PARTS_JOINING_H

#include "cli/cli.h"
#include "parts/part.h"

/* Run the command that @parts are of, in this process.  Returns its exit status. */
int cli_run_joined(struct tsr_parts *parts, const struct cli_common *common);

#endif
