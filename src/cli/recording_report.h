/* SPDX-License-Identifier: Apache-2.0 */
/* What inspect says of a recording. */
#ifndef TSR_CLI_RECORDING_REPORT_H
#define TSR_CLI_RECORDING_REPORT_H

#include "cli/cli.h"
#include "tersor/recording.h"

/* Open a recording and the headers of all its steps, and report them.  Exit status. */
int cli_inspect_recording(const struct cli_cmd *cmd, const struct cli_common *common,
			  const char *path, const struct tsr_open_options *options);

#endif
