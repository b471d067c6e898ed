/* SPDX-License-Identifier: Apache-2.0 */
/* tersor sweep --library: a function of somebody else's library against a codec or another function. */
#include "cli/operations.h"

#include "cli/files.h"
#include "cli/library.h"
#include "report/reports.h"
#include "tersor/gpu.h"

#define TIMEOUT_S 60

/* Whether what a codec makes of numbers can be compared with results of this type. */
static bool fits(const struct tsr_codec *codec, enum tsr_dtype out)
{
	if (out == TSR_F32)
		return true;
	if (out == TSR_U8)
		return codec->nplanes == 1 && tsr_dtype_bits(codec->planes[0].dtype) == 8;
	return codec->nplanes == 1 && codec->planes[0].dtype == out;
}

static int choose_codec(const struct cli_cmd *cmd, struct tsr_results_plan *p)
{
	if (!p->codec && (p->out == TSR_BF16 || p->out == TSR_F16))
		p->codec = tsr_codec_find(p->out == TSR_BF16 ? "bf16" : "fp16");
	if (!p->codec)
		return cli_usage(cmd, "--out %s needs --codec or --against-symbol", p->out_name);
	if (!fits(p->codec, p->out))
		return cli_usage(cmd, "--out %s: codec %s has no such codes", p->out_name,
				 p->codec->name);
	return CLI_OK;
}

/* A kernel needs a GPU, and a function none. */
static int check_device(const struct cli_cmd *cmd, const char *device, struct tsr_results_plan *p)
{
	static const char *const gpu_code[] = { ".cubin", ".fatbin", ".ptx", NULL };
	const char *suffix = strrchr(p->library, '.');

	p->on_gpu = !cli_is_cpu(device);
	if (p->on_gpu && !tsr_gpu_parse(device, &p->gpu))
		return cli_usage(cmd, "--library with --device %s: expected cpu, cuda or cuda:N",
				 device);
	for (size_t i = 0; suffix && !p->on_gpu && gpu_code[i]; i++) {
		if (strcmp(suffix, gpu_code[i]) == 0)
			return cli_usage(cmd, "--library %s has GPU code: add --device cuda",
					 p->library);
	}
	return CLI_OK;
}

static int report(const struct cli_cmd *cmd, const struct cli_common *common,
		  const struct tsr_results_plan *p, uint64_t max_ulp,
		  const struct tsr_json *baseline, const struct tsr_results *found)
{
	const struct tsr_results_row total = tsr_results_total(found);
	struct tsr_report r = cli_report(cmd, common, "library");

	r.wants_json = r.wants_json || baseline;
	if (max_ulp < UINT64_MAX)
		r.differs = total.nan || total.max_ulp > max_ulp;
	else
		r.differs = total.different && !baseline;
	tsr_results_report(p, found, &r);
	r.wants_json = common->report[CLI_JSON].given;
	if (baseline)
		tsr_baseline_report(&tsr_results_baseline, baseline, &r);
	return cli_end_report(&r, common);
}

int cli_sweep_library(const struct cli_cmd *cmd, const struct cli_common *common,
		      struct tsr_results_plan *p, uint64_t max_ulp, const struct tsr_json *baseline)
{
	TSR_OWNED(free) struct tsr_results *found = NULL;
	struct cli_work work;

	CLI_TRY(check_device(cmd, common->device, p));
	p->out_name = p->out_name ? p->out_name : "bf16";
	p->timeout_s = p->timeout_s ? p->timeout_s : TIMEOUT_S;
	CLI_TRY(cli_parse_dtype(cmd, p->out_name, &p->out));
	if (!p->against)
		CLI_TRY(choose_codec(cmd, p));
	found = malloc(sizeof(*found));
	if (!found)
		return cli_fail(CLI_IO, "out of memory");
	cli_work_start(&work, common, "sweeping");
	if (cli_work_end(&work, cli_library_run(p, &work.run, found, &work.err)) != TSR_OK)
		return cli_error(&work.err);
	return report(cmd, common, p, max_ulp, baseline, found);
}
