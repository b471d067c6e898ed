/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a report would replace another file that the command line names. */
#ifndef TSR_CLI_PATHS_H
#define TSR_CLI_PATHS_H

#include "cli/cli.h"

/* CLI_OK, or CLI_IO after a message.  Neither a report nor an output lands on another option's file. */
int cli_check_paths(const struct cli_opts *opts, const void *args);

#endif
