/* SPDX-License-Identifier: Apache-2.0 */
/* tersor version: the version, and what this build can use. */
#include <stdio.h>

#include "base/isa.h"
#include "text/json.h"
#include "cli/output.h"
#include "tersor/codec.h"
#include "tersor/gpu.h"
#include "tersor/version.h"

static int report_json(const struct cli_cmd *cmd, const struct cli_common *common)
{
	struct tsr_text json = { 0 };
	struct tsr_err err;
	char text[256];

	cli_json_begin(&json, cmd);
	tsr_json_put_string(&json, "version", TSR_VERSION);
	tsr_json_put_string(&json, "simd", tsr_isa_name());
	tsr_json_put_bool(&json, "cuda", tsr_gpu_built());
	tsr_json_open(&json, "gpus", '[');
	for (unsigned i = 0; i < tsr_gpu_count(); i++) {
		if (tsr_gpu_describe(i, text, sizeof(text), &err) == TSR_OK)
			tsr_json_put_string(&json, NULL, text);
	}
	tsr_json_close(&json, ']');
	return cli_json_end(&json, common);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;
	const unsigned ngpus = common->verbose ? tsr_gpu_count() : 0;
	struct tsr_err err;
	char text[256];

	if (cli_wants_text(common))
		printf("tersor %s\n", TSR_VERSION);
	if (cli_wants_text(common) && common->verbose) {
		printf("SIMD level: %s\nCUDA: %s\n", tsr_isa_name(),
		       !tsr_gpu_built() ? "not built in"
		       : ngpus		? "built in"
					: "built in, no usable GPU");
		for (unsigned i = 0; i < ngpus; i++) {
			if (tsr_gpu_describe(i, text, sizeof(text), &err) == TSR_OK)
				printf("cuda:%u: %s\n", i, text);
		}
	}
	return common->json.given ? report_json(cmd, common) : CLI_OK;
}

const struct cli_cmd cmd_version = {
	.name = "version",
	.summary = "show the version, and with -v what this build can use",
	.operands = "",
	.details = "Prints the version; with -v also the SIMD level in use and the GPUs.",
	.examples = "  tersor version -v\n",
	.takes = CLI_REPORTS,
	.args_nbytes = sizeof(struct cli_common),
	.run = run,
};
