/* SPDX-License-Identifier: Apache-2.0 */
/* tersor unpack: packed files back into FP32 checkpoints. */

#include "cli/operations.h"
#include "cli/files.h"

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

static void report(struct tsr_report *r, const struct cli_common *common,
		   const struct tsr_unpacking *u)
{
	const unsigned generation = u->source->generation;
	struct tsr_summary summary = { 0 };

	cli_json_output(&r->json, common);
	tsr_json_put_u64(&r->json, "generation", generation);
	tsr_json_put_u64(&r->json, "nbytes", u->nbytes);
	tsr_text_printf(&r->text, "%s: %zu tensors, %s%s", cli_output_name(common, 40).text,
			u->source->ntensors, tsr_format_bytes((double)u->nbytes).text,
			common->dry_run ? " planned" : "");
	if (generation)
		tsr_text_printf(&r->text, ", %s",
				tsr_format_number(generation, "lossy generation").text);
	tsr_text_puts(&r->text, "\n");
	tsr_summary_add_all(&summary, u->source);
	tsr_summary_put_worst(&summary, "  largest error when it was packed", &r->text);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	static const struct cli_unpacking how = { "name,dtype,shape,-coding", report, NULL };
	const struct args *a = args;
	struct tsr_write_options o = cli_write_options(&a->common, a->to);
	const char *in = a->common.operands.items[0];
	struct tsr_unpacking *u = NULL;
	enum tsr_status written;
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
	written = tsr_unpack(in, a->common.output, &o, &work.run, &u, &work.err);
	return cli_end_unpacking(cmd, &a->common, &how, &o, &work, written, u);
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
