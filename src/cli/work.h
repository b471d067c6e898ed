/* SPDX-License-Identifier: Apache-2.0 */
/* Long work: threads, GPUs, cancellation by signals, and the progress bar on stderr. */
#ifndef TSR_CLI_WORK_H
#define TSR_CLI_WORK_H

#include <stdatomic.h>

#include "cli/cli.h"
#include "tersor/gpu.h"
#include "tersor/run.h"
#include "text/text.h"

/* --- Which GPUs --device means --------------------------------------------------------------- */

#define CLI_GPUS_MAX 64u

/* Where to compute: on the GPUs with these indices, or on the CPU if there are none. */
struct cli_device {
	unsigned gpus[CLI_GPUS_MAX];
	unsigned ngpus;
};

/* Whether --device names no GPU. */
bool cli_is_cpu(const char *device);

/*
 * What --device means; NULL is auto: every usable GPU if the work is @worth_it, else the CPU.  "cuda:all"
 * is every GPU, "cuda:N,M" a list, "cuda" the first.  CLI_OK, or the exit status after a message: every
 * GPU that is named has to be usable, and named once.
 */
int cli_choose_device(const struct cli_cmd *cmd, const char *device, bool worth_it,
		      struct cli_device *ret);

/*
 * Of the GPUs that a device means, the one for process number @process of this machine, as a device of
 * its own; "cuda" is every GPU here.
 */
int cli_deal_device(const struct cli_cmd *cmd, const char *device, unsigned process, char *text,
		    size_t room);

/* With -v: say on stderr where @what is done, unless there is only one place for it. */
void cli_say_device(const struct cli_common *common, const char *what, const struct cli_device *d);

/*
 * --device of a command that encodes or decodes files: open the GPUs, of which there are *ngpus_ret to be
 * closed also after a failure.  "auto" is the CPU, as all data would have to travel to a GPU and back.
 * @gpus: room for CLI_GPUS_MAX.
 */
int cli_open_gpus(const struct cli_cmd *cmd, const struct cli_common *common, const char *what,
		  struct tsr_gpu **gpus, unsigned *ngpus_ret);

/* --- Long work: threads, GPUs, cancellation by signals, and the progress bar on stderr ------- */

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
