/* SPDX-License-Identifier: Apache-2.0 */
/* tersor unpack: packed files back into FP32 checkpoints. */
#include <stdio.h>

#include "cli/unpacking.h"
#include "pack/packing.h"
#include "report/format.h"
#include "text/json.h"

struct args {
	struct cli_common common;
	const char *to;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("to", "CONTAINER", CLI_WORD, to, "safetensors pt npz npy",
		"safetensors, pt, npz or npy (default: by OUT's extension, else what was packed)"),
	{ 0 }
};

static void print_report(const struct cli_common *common, const struct tsr_unpacking *u)
{
	for (size_t i = 0; common->verbose && i < u->source->ntensors; i++) {
		const struct tsr_tensor *t = &u->source->tensors[i];

		printf("  %-36s %-4s %-16s from %s\n", tsr_format_name(t->name, 36).text,
		       tsr_dtype_name(t->dtype), tsr_format_shape(t->rank, t->shape).text,
		       tsr_format_coding(&t->coding).text);
	}
	printf("%s: %zu tensors, %s%s", tsr_format_name(common->output, 40).text,
	       u->source->ntensors, tsr_format_bytes((double)u->nbytes).text,
	       common->dry_run ? " planned" : "");
	if (u->source->generation)
		printf(", %u lossy generation%s", u->source->generation,
		       u->source->generation > 1 ? "s" : "");
	printf("\n");
}

static void put_json(struct tsr_text *json, const struct cli_common *common,
		     const struct tsr_unpacking *u)
{
	tsr_json_put_string(json, "input", common->operands.items[0]);
	tsr_json_put_string(json, "output", common->output);
	tsr_json_put_bool(json, "dry_run", common->dry_run);
	tsr_json_put_u64(json, "generation", u->source->generation);
	tsr_json_put_u64(json, "nbytes", u->nbytes);
}

static enum tsr_status unpack(const struct cli_common *common, const struct tsr_write_options *o,
			      const struct tsr_run *run, struct tsr_unpacking **ret,
			      struct tsr_err *err)
{
	return tsr_unpack(common->operands.items[0], common->output, o, run, ret, err);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	static const struct cli_unpacking how = { "unpacking", unpack, print_report, put_json };
	const struct args *a = args;
	const struct tsr_write_options o = cli_write_options(&a->common, a->to);

	return cli_unpack(cmd, &a->common, &how, &o);
}

const struct cli_cmd cmd_unpack = {
	.name = "unpack",
	.summary = "restore the FP32 checkpoint from a packed one",
	.operands = "IN",
	.details =
		"Writes the checkpoint that a packed file was made from: names, shapes, dtypes, "
		"order and metadata as they were, FP32 tensors decoded, everything else byte for "
		"byte, and in a .pt the values around the tensors too. Every plane is checked "
		"against its hash. If a lossy codec was used, the output says so in one more "
		"entry, tersor_generation. Also decodes the compressed state dicts of FlashOptim, "
		"bitsandbytes, torchao and TransformerEngine.",
	.examples = "  tersor unpack packed.safetensors -o checkpoint.safetensors\n"
		    "  tersor unpack packed.safetensors -o checkpoint.pt\n",
	.opts = opts,
	.takes = CLI_WRITES | CLI_READS | CLI_COMPUTES | CLI_WORKS | CLI_REPORTS,
	.output_needed = true,
	.operands_min = 1,
	.operands_max = 1,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
