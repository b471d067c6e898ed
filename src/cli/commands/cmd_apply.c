/* SPDX-License-Identifier: Apache-2.0 */
/* tersor apply: a weight update onto the model that it was made for. */

#include "cli/files.h"
#include "cli/operations.h"

/* The file that is written: without -o the model itself. */
static const char *target(const struct cli_common *common)
{
	return common->output ? common->output : common->operands.items[1];
}

static void report(struct tsr_report *r, const struct cli_common *common,
		   const struct tsr_unpacking *u)
{
	tsr_json_put_string(&r->json, "output", target(common));
	tsr_json_put_bool(&r->json, "in_place", !common->output);
	tsr_json_put_bool(&r->json, "dry_run", common->dry_run);
	tsr_json_put_u64(&r->json, "nbytes", u->nbytes);
	tsr_text_printf(&r->text, "%s: %zu tensors, %s%s\n",
			tsr_format_name(target(common), 40).text, u->source->ntensors,
			tsr_format_bytes((double)u->nbytes).text,
			common->dry_run ? " planned" : "");
}

static int run(const struct cli_cmd *cmd, void *args)
{
	static const struct cli_unpacking how = { .report = report };
	const struct cli_common *common = args;
	const struct tsr_write_options o = cli_write_options(common, "safetensors");
	struct tsr_unpacking *u = NULL;
	enum tsr_status written;
	struct cli_work work;

	cli_work_start(&work, common, "applying");
	written = tsr_apply(common->operands.items[0], common->operands.items[1], common->output,
			    &o, &work.run, &u, &work.err);
	return cli_end_unpacking(cmd, common, &how, NULL, &work, written, u);
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
