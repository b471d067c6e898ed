/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs --device means. */
#include "cli/work.h"

#include "base/isa.h"

static bool is_auto(const char *device)
{
	return !device || strcmp(device, "auto") == 0;
}

bool cli_is_cpu(const char *device)
{
	return is_auto(device) || strcmp(device, "cpu") == 0;
}

static int unknown(const struct cli_cmd *cmd, const char *device)
{
	return cli_usage(cmd,
			 "unknown device '%s', expected auto, cpu, cuda, cuda:all, cuda:N or "
			 "cuda:N,N...",
			 device);
}

/* --- Lists of GPUs ---------------------------------------------------------------------------- */

/* Add the GPU whose number is @text, of @length. */
static int add_gpu(const struct cli_cmd *cmd, const char *device, const char *text, size_t length,
		   struct cli_device *ret)
{
	char one[16];
	unsigned index;

	if (length == 0 || length > sizeof(one) - sizeof("cuda:"))
		return unknown(cmd, device);
	snprintf(one, sizeof(one), "cuda:%.*s", (int)length, text);
	if (!tsr_gpu_parse(one, &index))
		return unknown(cmd, device);
	for (unsigned i = 0; i < ret->ngpus; i++) {
		if (ret->gpus[i] == index)
			return cli_usage(cmd, "device '%s': found GPU %u twice, expected it once",
					 device, index);
	}
	if (ret->ngpus == CLI_GPUS_MAX)
		return cli_usage(cmd, "device '%s': found more than %u GPUs", device, CLI_GPUS_MAX);
	ret->gpus[ret->ngpus++] = index;
	return CLI_OK;
}

/* "cuda", the first GPU, or "cuda:" and numbers with commas between them.  They need not exist. */
static int parse_gpus(const struct cli_cmd *cmd, const char *device, struct cli_device *ret)
{
	const char *at = device + strlen("cuda:");

	ret->ngpus = 0;
	if (strcmp(device, "cuda") == 0)
		return add_gpu(cmd, device, "0", 1, ret);
	if (strncmp(device, "cuda:", strlen("cuda:")) != 0)
		return unknown(cmd, device);
	for (;; at++) {
		const size_t length = strcspn(at, ",");

		CLI_TRY(add_gpu(cmd, device, at, length, ret));
		at += length;
		if (!*at)
			return CLI_OK;
	}
}

/* "cuda:all" is all there are; the first if there is none, so that whoever uses it says what is missing. */
static int list_gpus(const struct cli_cmd *cmd, const char *device, struct cli_device *ret)
{
	const bool all = device && strcmp(device, "cuda:all") == 0;
	const unsigned n = all ? tsr_gpu_count() : 0;

	ret->ngpus = 0;
	if (cli_is_cpu(device))
		return CLI_OK;
	if (!all)
		return parse_gpus(cmd, device, ret);
	if (n > CLI_GPUS_MAX)
		return cli_usage(cmd, "device 'cuda:all': found %u GPUs, expected at most %u", n,
				 CLI_GPUS_MAX);
	for (; ret->ngpus < n || !ret->ngpus; ret->ngpus++)
		ret->gpus[ret->ngpus] = ret->ngpus;
	return CLI_OK;
}

/* --- What --device means ---------------------------------------------------------------------- */

int cli_choose_device(const struct cli_cmd *cmd, const char *device, bool worth_it,
		      struct cli_device *ret)
{
	const unsigned n = is_auto(device) && worth_it ? tsr_gpu_count() : 0;
	struct tsr_err err;

	CLI_TRY(list_gpus(cmd, device, ret));
	for (unsigned i = 0; i < ret->ngpus; i++) {
		if (tsr_gpu_check(ret->gpus[i], &err) != TSR_OK)
			return cli_error(&err);
	}
	for (unsigned i = 0; i < n && ret->ngpus < CLI_GPUS_MAX; i++) {
		if (tsr_gpu_check(i, &err) == TSR_OK)
			ret->gpus[ret->ngpus++] = i;
	}
	return CLI_OK;
}

int cli_deal_device(const struct cli_cmd *cmd, const char *device, unsigned process, char *text,
		    size_t room)
{
	const bool all = strcmp(device, "cuda") == 0 || strcmp(device, "cuda:all") == 0;
	const unsigned n = all ? tsr_gpu_count() : 0;
	struct cli_device named;

	if (cli_is_cpu(device) || (all && !n)) {
		snprintf(text, room, "%s", all ? "cuda" : device);
	} else if (all) {
		snprintf(text, room, "cuda:%u", process % n);
	} else {
		CLI_TRY(parse_gpus(cmd, device, &named));
		snprintf(text, room, "cuda:%u", named.gpus[process % named.ngpus]);
	}
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

int cli_open_gpus(const struct cli_cmd *cmd, const struct cli_common *common, const char *what,
		  struct tsr_gpu **gpus, unsigned *ngpus_ret)
{
	struct cli_device device;
	struct tsr_err err;

	*ngpus_ret = 0;
	CLI_TRY(list_gpus(cmd, common->device, &device));
	for (; *ngpus_ret < device.ngpus; ++*ngpus_ret) {
		if (tsr_gpu_open(device.gpus[*ngpus_ret], &gpus[*ngpus_ret], &err) != TSR_OK)
			return cli_error(&err);
	}
	cli_say_device(common, what, &device);
	return CLI_OK;
}
