/* SPDX-License-Identifier: Apache-2.0 */
/* tersor unpack: packed files back into FP32 checkpoints. */

#include "cli/operations.h"
#include "cli/files.h"
#include "report/checkpoints/checkpoint_reports.h"

struct args {
	struct cli_common common;
	const char *to, *only, *as;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("to", "CONTAINER", CLI_WORD, to, "safetensors pt dcp npz npy"),
	CLI_OPT("only", "PART", CLI_WORD, only, "weights"),
	CLI_OPT("as", "DTYPE", CLI_WORD, as, "bf16 f16 f32", .needs = "only=weights"),
	{ 0 }
};

static int run(const struct cli_cmd *cmd, void *args)
{
	struct cli_unpacking done = { .shown = "name,dtype,shape,-coding",
				      .report = tsr_unpacking_report };
	const struct args *a = args;
	struct tsr_write_options o = cli_write_options(&a->common, a->to);
	const char *in = a->common.operands.items[0];
	struct cli_work work;

	o.only_model = a->only != NULL;
	if (a->as)
		CLI_TRY(cli_parse_dtype(cmd, a->as, &o.as));
	if (tsr_directory_is_packed(in)) {
		if (a->only)
			return cli_usage(cmd,
					 "--only is for one packed file, found a directory; name "
					 "the file in it that has the weights");
		if (!a->to && o.container != TSR_CONTAINER_COUNT)
			return cli_usage(cmd,
					 "%s is a packed directory, and %s has the name of a file",
					 in, a->common.output);
		return cli_unpack_directory(cmd, &a->common, &o);
	}
	CLI_TRY(cli_work_open(&work, cmd, &a->common, "unpacking"));
	done.written = cli_work_end(
		&work, tsr_unpack(in, a->common.output, &o, &work.run, &done.u, &work.err));
	done.err = &work.err;
	return cli_end_unpacking(cmd, &a->common, &done);
}

TSR_EMBED(help_unpack, "man/help/unpack.txt");

const struct cli_cmd cmd_unpack = {
	.name = "unpack",
	.summary = "restore the FP32 checkpoint from a packed one",
	.operands = "IN",
	.help = help_unpack,
	.opts = opts,
	.takes = CLI_PARTS | CLI_WRITES | CLI_READS | CLI_COMPUTES | CLI_WORKS | CLI_REPORTS |
		 CLI_NUMBERS,
	.output_needed = true,
	.name_output = cli_name_unpacked,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
