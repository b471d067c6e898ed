/* SPDX-License-Identifier: Apache-2.0 */
/* tersor convert: checkpoints from one file format to another. */

#include "cli/operations.h"
#include "cli/files.h"
#include "cli/parts/parting.h"
#include "report/checkpoints/checkpoint_reports.h"

struct args {
	struct cli_common common;
	const char *to;
	bool strict, plain;
	struct cli_optional entropy;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("to", "CONTAINER", CLI_WORD, to, "safetensors pt dcp npz npy flashoptim"),
	CLI_OPT("entropy", "WHICH", CLI_OPTIONAL, entropy, "all states", .excludes = "to strict"),
	CLI_OPT("plain", NULL, CLI_FLAG, plain, NULL, .excludes = "entropy to strict"),
	CLI_OPT("strict", NULL, CLI_FLAG, strict, NULL),
	{ 0 }
};

static int run(const struct cli_cmd *cmd, void *args)
{
	struct cli_unpacking done = { .shown = "name,dtype,shape",
				      .report = tsr_conversion_report };
	const struct args *a = args;
	struct tsr_recode_options how = tsr_recode_defaults();
	const struct cli_list *in = &a->common.operands;
	const bool packed = tsr_directory_is_packed(in->items[0]);
	struct tsr_write_options o = cli_write_options(&a->common, a->to);
	struct cli_work work;

	how.coded = cli_coded_planes(&a->entropy);
	if ((a->plain || a->entropy.given) && in->n != 1)
		return cli_usage(cmd, "--%s takes one packed file, packed directory or recording",
				 a->plain ? "plain" : "entropy");
	/* What is stored stays, in the form that was asked for. */
	if (a->plain || a->entropy.given)
		return cli_recode(cmd, &a->common, &how, false);
	if (packed)
		CLI_TRY(cli_part_refuse(cmd, "a packed directory"));
	if (o.container == TSR_CONTAINER_COUNT)
		return cli_usage(cmd,
				 "'%s' does not end in .safetensors, .pt, .npz or .npy; name the "
				 "format with --to",
				 a->common.output);
	if (a->common.max_shard && o.container != TSR_CONTAINER_SAFETENSORS &&
	    o.container != TSR_CONTAINER_DCP)
		return cli_usage(cmd, "--max-shard-size is for safetensors and dcp only");
	o.strict = a->strict;
	CLI_TRY(cli_work_open(&work, cmd, &a->common, "converting"));
	done.written = packed && in->n == 1
			       ? tsr_convert_directory(in->items[0], a->common.output, &o,
						       &work.run, &done.u, &work.err)
			       : tsr_convert(in->items, in->n, a->common.output, &o, &work.run,
					     &done.u, &work.err);
	cli_work_end(&work, done.written);
	done.err = &work.err;
	return cli_end_unpacking(cmd, &a->common, &done);
}

TSR_EMBED(help_convert, "man/help/convert.txt");

const struct cli_cmd cmd_convert = {
	.name = "convert",
	.summary = "write a checkpoint in another file format, elements unchanged",
	.operands = "IN...",
	.help = help_convert,
	.opts = opts,
	.takes = CLI_PARTS | CLI_WRITES | CLI_READS | CLI_WORKS | CLI_REPORTS | CLI_NUMBERS,
	.output_needed = true,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
