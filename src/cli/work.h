/* SPDX-License-Identifier: Apache-2.0 */
/* Long work: threads, GPUs, cancellation by signals, and the progress bar on stderr. */
#ifndef TSR_CLI_WORK_H
#define TSR_CLI_WORK_H

#include <stdatomic.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/device.h"
#include "tersor/run.h"
#include "text/text.h"

/*
 * One of several processes that share one piece of work: what their driver (tersor-mpi) and the command
 * tell each other.  The driver sets the first members before the command starts, and reads those that the
 * command sets when it has ended; the atomic ones are written and read while it runs.
 */
struct cli_shared_work {
	const char *part; /* "2/5": --part */
	unsigned threads; /* -j, unless the user gives it */
	unsigned
		index_on_machine; /* among the processes of this machine: which of the GPUs is its */
	/* By the command, on success; to be freed. */
	char *path; /* what its part is of */
	struct tsr_text report; /* the part's, where it is not in a file beside @path */
	_Atomic uint64_t done, total; /* by the command: bytes */
	atomic_bool stop; /* by the driver: give up */
};

/* NULL: this process does the whole work. */
extern struct cli_shared_work *cli_shared_work;

/* Draw a progress bar, at most 78 columns, over the last one.  @started and @now are of tsr_seconds(). */
void cli_draw_bar(FILE *to, const char *verb, uint64_t done, uint64_t total, double started,
		  double now);
/* Wipe it. */
void cli_wipe_bar(FILE *to);

/* Work in progress.  Its address must not change. */
struct cli_work {
	struct tsr_run run; /* for the library */
	struct tsr_err err; /* of the library's function, if that fails */
	struct tsr_gpu *gpus[CLI_GPUS_MAX]; /* of the run */
	const char *verb; /* NULL: no bar */
	bool shown;
	double started, printed;
};

/* Start work with -j's threads: "packing".  End it with cli_work_end(). */
void cli_work_start(struct cli_work *w, const struct cli_common *common, const char *verb);

/* The same with --device's GPUs, if it names any.  CLI_OK, or the exit status after a message. */
int cli_work_open(struct cli_work *w, const struct cli_cmd *cmd, const struct cli_common *common,
		  const char *verb);

/* The end of work of this outcome, which is returned. */
enum tsr_status cli_work_end(struct cli_work *w, enum tsr_status status);

#endif
