/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs --device means. */
#ifndef TSR_CLI_DEVICE_H
#define TSR_CLI_DEVICE_H

#include <stdbool.h>

#include "cli/cli.h"
#include "tersor/gpu.h"

#define CLI_GPUS_MAX 64

/* Where to compute: on the GPUs with these indices, or on the CPU if there are none. */
struct cli_device {
	unsigned gpus[CLI_GPUS_MAX];
	unsigned ngpus;
};

/*
 * --device of a command whose work pays off on a GPU; NULL is auto.  "cuda" is every GPU, "cuda:N"
 * one; "auto" every usable GPU if the work is @worth_it, else the CPU.
 */
int cli_choose_device(const struct cli_cmd *cmd, const char *device, bool worth_it,
		      struct cli_device *ret);

/* With -v: say on stderr where @what is done, unless there is only one place for it. */
void cli_say_device(const struct cli_common *common, const char *what, const struct cli_device *d);

/*
 * --device of a command that encodes or decodes files.  *gpu_ret: the GPU, to be closed; NULL for
 * the CPU.  "auto" is the CPU, as all data would have to travel to a GPU and back; "cuda" is the
 * first GPU.
 */
int cli_open_gpu(const struct cli_cmd *cmd, const struct cli_common *common, const char *what,
		 struct tsr_gpu **gpu_ret);

#endif
