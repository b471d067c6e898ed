/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs --device means. */
#include "cli/device.h"

#include <stdio.h>
#include <string.h>

#include "base/isa.h"
#include "tersor/codec.h"
#include "tersor/gpu.h"

static bool is_cpu(const char *device)
{
	return strcmp(device, "cpu") == 0;
}

static bool is_auto(const char *device)
{
	return !device || strcmp(device, "auto") == 0;
}

static int unknown(const struct cli_cmd *cmd, const char *device)
{
	return cli_usage(cmd, "unknown device '%s', expected auto, cpu, cuda or cuda:N", device);
}

/* Every usable GPU; with @all it is an error if one is not. */
static enum tsr_status find_gpus(bool all, struct cli_device *ret, struct tsr_err *err)
{
	const unsigned n = tsr_gpu_count();

	for (unsigned i = 0; i < n && ret->ngpus < CLI_GPUS_MAX; i++) {
		if (tsr_gpu_check(i, err) == TSR_OK)
			ret->gpus[ret->ngpus++] = i;
		else if (all)
			return err->code;
	}
	/* The error says what is missing: CUDA, the driver or a GPU. */
	return all && !ret->ngpus ? tsr_gpu_check(0, err) : TSR_OK;
}

int cli_choose_device(const struct cli_cmd *cmd, const char *device, bool worth_it,
		      struct cli_device *ret)
{
	const bool all = device && strcmp(device, "cuda") == 0;
	struct tsr_err err;

	ret->ngpus = 0;
	if (is_auto(device) || all) {
		if ((all || worth_it) && find_gpus(all, ret, &err) != TSR_OK)
			return cli_error(&err);
		return CLI_OK;
	}
	if (is_cpu(device))
		return CLI_OK;
	if (!tsr_gpu_parse(device, &ret->gpus[0]))
		return unknown(cmd, device);
	if (tsr_gpu_check(ret->gpus[0], &err) != TSR_OK)
		return cli_error(&err);
	ret->ngpus = 1;
	return CLI_OK;
}

void cli_say_device(const struct cli_common *common, const char *what, const struct cli_device *d)
{
	char text[256];
	struct tsr_err err;

	if (!common->verbose)
		return;
	if (!d->ngpus && tsr_gpu_count())
		fprintf(stderr, "tersor: %s on the CPU, %s\n", what, tsr_isa_name());
	for (unsigned i = 0; i < d->ngpus; i++) {
		if (tsr_gpu_describe(d->gpus[i], text, sizeof(text), &err) == TSR_OK)
			fprintf(stderr, "tersor: %s on cuda:%u, %s\n", what, d->gpus[i], text);
	}
}

int cli_open_gpu(const struct cli_cmd *cmd, const struct cli_common *common, const char *what,
		 struct tsr_gpu **gpu_ret)
{
	struct cli_device one = { .ngpus = 0 };
	struct tsr_err err;

	*gpu_ret = NULL;
	if (!is_auto(common->device) && !is_cpu(common->device)) {
		if (!tsr_gpu_parse(common->device, &one.gpus[0]))
			return unknown(cmd, common->device);
		if (tsr_gpu_open(one.gpus[0], gpu_ret, &err) != TSR_OK)
			return cli_error(&err);
		one.ngpus = 1;
	}
	cli_say_device(common, what, &one);
	return CLI_OK;
}
