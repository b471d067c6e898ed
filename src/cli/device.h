/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs --device means. */
#ifndef TSR_CLI_DEVICE_H
#define TSR_CLI_DEVICE_H

#include <stdbool.h>

#include "cli/cli.h"
#include "tersor/gpu.h"

#define CLI_GPUS_MAX 64u

/* Where to compute: on the GPUs with these indices, or on the CPU if there are none. */
struct cli_device {
	unsigned gpus[CLI_GPUS_MAX];
	unsigned ngpus;
};

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

#endif
