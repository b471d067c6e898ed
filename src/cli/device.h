/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CLI_DEVICE_H
#define TSR_CLI_DEVICE_H

#include <stdbool.h>

#include "cli/cli.h"
#include "tersor/gpu.h"

#define CLI_GPUS_MAX 64

/* Where to compute: on GPUs with these indices, or where there are none on the CPU. */
struct cli_device {
	unsigned gpus[CLI_GPUS_MAX];
	unsigned ngpus;
};

/*
 * --device of a command that runs on either; NULL is auto.  "cuda" is every GPU, "cuda:N" that one;
 * "auto" every GPU that can be used if the work is @worth_it, else the CPU.
 */
int cli_choose_device(const struct cli_cmd *cmd, const char *device, bool worth_it,
		      struct cli_device *ret);

/* With -v: say on stderr where @what is done, if there is more than one place for it. */
void cli_say_device(const struct cli_common *common, const char *what, const struct cli_device *d);

/*
 * --device of a command that encodes and decodes files, and what @what says is done there, with -v.
 * *gpu_ret: the GPU, to be closed; NULL for the CPU, which "auto" is, as all data would travel to a
 * GPU and back.  "cuda" is the first.
 */
int cli_open_gpu(const struct cli_cmd *cmd, const struct cli_common *common, const char *device,
		 const char *what, struct tsr_gpu **gpu_ret);

#endif
