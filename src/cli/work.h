/* SPDX-License-Identifier: Apache-2.0 */
/* Long work: threads, a GPU, cancellation by signals, and the progress bar on stderr. */
#ifndef TSR_CLI_WORK_H
#define TSR_CLI_WORK_H

#include "cli/cli.h"
#include "tersor/run.h"

/* Work in progress.  Its address must not change. */
struct cli_work {
	struct tsr_run run; /* for the library */
	const char *verb; /* NULL: no bar */
	bool shown;
	double started, printed;
};

/* Start work with -j's threads: "packing".  End it with cli_work_end(). */
void cli_work_start(struct cli_work *w, const struct cli_common *common, const char *verb);

/* The same with --device's GPU, if it names one.  CLI_OK, or the exit status after a message. */
int cli_work_open(struct cli_work *w, const struct cli_cmd *cmd, const struct cli_common *common,
		  const char *verb);
void cli_work_end(struct cli_work *w);

#endif
