/* SPDX-License-Identifier: Apache-2.0 */
/* tersor apply: a weight update onto the model that it was made for. */

#include "cli/files.h"
#include "cli/operations.h"
#include "report/checkpoints/checkpoint_reports.h"

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;
	const char *update = common->operands.items[0], *model = common->operands.items[1];
	const struct tsr_write_options o = cli_write_options(common, "safetensors");
	/* Without -o the model itself is written. */
	struct cli_unpacking done = { .report = tsr_apply_report,
				      .output = common->output ? common->output : model };
	struct cli_work work;

	cli_work_start(&work, common, "applying");
	done.written = cli_work_end(
		&work, tsr_apply(update, model, common->output, &o, &work.run, &done.u, &work.err));
	done.err = &work.err;
	return cli_end_unpacking(cmd, common, &done);
}

TSR_EMBED(help_apply, "man/help/apply.txt");

const struct cli_cmd cmd_apply = {
	.name = "apply",
	.summary = "put a weight update onto the model that it was made for",
	.operands = "UPDATE MODEL",
	.help = help_apply,
	.takes = CLI_WRITES | CLI_WORKS | CLI_REPORTS,
	.run = run,
};
