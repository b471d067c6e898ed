/* SPDX-License-Identifier: Apache-2.0 */
/* tersor version: the version, and what this build can use. */
#include "base/isa.h"
#include "cli/files.h"
#include "tersor/gpu.h"
#include "tersor/version.h"

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;
	struct tsr_report r = cli_report(cmd, common, NULL);
	const unsigned ngpus = r.verbose || r.wants_json ? tsr_gpu_count() : 0;
	struct tsr_err err;
	char text[256];

	tsr_json_put_string(&r.json, "version", TSR_VERSION);
	tsr_json_put_string(&r.json, "simd", tsr_isa_name());
	tsr_json_put_bool(&r.json, "cuda", tsr_gpu_built());
	tsr_json_open(&r.json, "gpus", '[');
	tsr_text_printf(&r.text, "tersor %s\n", TSR_VERSION);
	if (r.verbose)
		tsr_text_printf(&r.text, "SIMD level: %s\nCUDA: %s\n", tsr_isa_name(),
				!tsr_gpu_built() ? "not built in"
				: ngpus		 ? "built in"
						 : "built in, no usable GPU");
	for (unsigned i = 0; i < ngpus; i++) {
		if (tsr_gpu_describe(i, text, sizeof(text), &err) != TSR_OK)
			continue;
		tsr_json_put_string(&r.json, NULL, text);
		if (r.verbose)
			tsr_text_printf(&r.text, "cuda:%u: %s\n", i, text);
	}
	tsr_json_close(&r.json, ']');
	return cli_end_report(&r, common);
}

TSR_EMBED(help_version, "man/help/version.txt");

const struct cli_cmd cmd_version = {
	.name = "version",
	.summary = "show the version, and with -v what this build can use",
	.operands = "",
	.help = help_version,
	.takes = CLI_REPORTS,
	.run = run,
};
