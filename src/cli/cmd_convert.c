/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "ckpt/checkpoint_model.h"
#include "text/json.h"
#include "cli/input.h"
#include "cli/output.h"
#include "tersor/pack.h"

struct args {
	struct cli_common common;
	struct cli_input input;
	const char *output, *to;
	uint64_t max_shard;
	bool strict, force, dry_run;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	{ "output", 'o', "OUT", CLI_STRING, AT(output), 0, 0, "@file", "the file to write" },
	{ "to", 0, "CONTAINER", CLI_STRING, AT(to), 0, 0, "safetensors pt npz npy flashoptim",
	  "safetensors, pt, npz, npy or flashoptim; by default what OUT's name ends in" },
	{ "max-shard-size", 0, "SIZE", CLI_NUMBER, AT(max_shard), 1, UINT64_MAX, NULL,
	  "write safetensors shards of at most SIZE bytes of data, and an index" },
	{ "strict", 0, NULL, CLI_FLAG, AT(strict), 0, 0, NULL,
	  "fail if a record of the input has no checksum" },
	CLI_INPUT_OPTS(struct args),
	{ "force", 'f', NULL, CLI_FLAG, AT(force), 0, 0, NULL, "replace an existing OUT" },
	{ "dry-run", 0, NULL, CLI_FLAG, AT(dry_run), 0, 0, NULL,
	  "show the plan; read headers only, write nothing" },
	{ 0 }
};

static void print_report(const struct args *a, const struct tsr_unpacking *u)
{
	char name[128], shape[64], size[16];

	for (size_t i = 0; a->common.verbose && i < u->source->ntensors; i++) {
		const struct tsr_tensor *t = &u->source->tensors[i];

		cli_format_name(name, sizeof(name), t->name, 46);
		cli_format_shape(shape, sizeof(shape), t->rank, t->shape);
		printf("  %-46s %-8s %s\n", name, tsr_dtype_name(t->dtype), shape);
	}
	cli_format_bytes(size, sizeof(size), (double)u->nbytes);
	cli_format_name(name, sizeof(name), a->output, 40);
	printf("%s: %s, %zu tensors, %s%s\n", name, tsr_container_name(u->container),
	       u->source->ntensors, size, a->dry_run ? " planned" : "");
}

static int report_json(const struct cli_cmd *cmd, const struct args *a,
		       const struct tsr_unpacking *u)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_open(&json, "inputs", '[');
	for (unsigned i = 0; i < a->common.operands.n; i++)
		tsr_json_put_string(&json, NULL, a->common.operands.items[i]);
	tsr_json_close(&json, ']');
	tsr_json_put_string(&json, "output", a->output);
	tsr_json_put_string(&json, "from", tsr_container_name(u->source->container));
	tsr_json_put_string(&json, "to", tsr_container_name(u->container));
	tsr_json_put_bool(&json, "dry_run", a->dry_run);
	tsr_json_put_u64(&json, "nbytes", u->nbytes);
	tsr_json_put_u64(&json, "unchecked", u->source->nunchecked);
	tsr_json_open(&json, "notes", '[');
	for (size_t i = 0; i < u->source->nnotes; i++)
		tsr_json_put_string(&json, NULL, u->source->notes[i]);
	tsr_json_close(&json, ']');
	tsr_json_open(&json, "tensors", '[');
	for (size_t i = 0; i < u->source->ntensors; i++) {
		tsr_json_open(&json, NULL, '{');
		cli_json_tensor(&json, &u->source->tensors[i]);
		tsr_json_close(&json, '}');
	}
	tsr_json_close(&json, ']');
	return cli_json_end(&json, &a->common);
}

static int convert(const struct cli_cmd *cmd, struct args *a, const struct tsr_write_options *o)
{
	struct tsr_unpacking *u = NULL;
	struct cli_progress progress;
	struct tsr_run run = cli_run_start(&progress, &a->common, "converting");
	struct tsr_err err = { 0 };
	const enum tsr_status converted = tsr_convert(
		a->common.operands.items, a->common.operands.n, a->output, o, &run, &u, &err);
	int status = CLI_OK;

	cli_run_end(&progress);
	if (!u)
		return cli_error(&err);
	cli_warn_notes(&a->common, u->source);
	if (cli_wants_text(&a->common))
		print_report(a, u);
	if (a->common.json.given)
		status = report_json(cmd, a, u);
	tsr_unpacking_free(u);
	return converted == TSR_OK ? status : cli_error(&err);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct args *a = args;
	struct tsr_write_options o = tsr_write_defaults();
	struct cli_inputs inputs;
	int status;

	if (!a->output)
		return cli_usage(cmd, "no output; give it with -o OUT");
	status = cli_parse_container(cmd, a->to, a->output, &o);
	if (status != CLI_OK)
		return status;
	if (o.container == TSR_CONTAINER_COUNT)
		return cli_usage(cmd,
				 "'%s' does not end in .safetensors, .pt, .npz or .npy; say with "
				 "--to what it is to be",
				 a->output);
	if (a->max_shard && o.container != TSR_CONTAINER_SAFETENSORS)
		return cli_usage(cmd, "--max-shard-size is for safetensors only");
	status = cli_parse_input(cmd, &a->input, &inputs);
	if (status != CLI_OK)
		return status;
	o.max_shard_nbytes = a->max_shard;
	o.open = &inputs.open;
	o.strict = a->strict;
	o.force = a->force;
	o.dry_run = a->dry_run;
	status = convert(cmd, a, &o);
	cli_input_free(&inputs);
	return status;
}

const struct cli_cmd cmd_convert = {
	.name = "convert",
	.summary = "one container to another, elements untouched",
	.operands = "IN...",
	.details =
		"Writes the tensors of one or more inputs into another kind of file: safetensors, "
		"also in shards; what torch.load reads; NumPy's .npz and .npy. Inputs may also be "
		"directories of torch.distributed.checkpoint. What stands around the tensors in a "
		".pt (param_groups, steps, arguments) survives in safetensors, and comes back in "
		"a .pt. --to flashoptim makes a FlashOptim state dict of a packed file.",
	.examples = "  tersor convert checkpoint.pt -o checkpoint.safetensors\n"
		    "  tersor convert model.safetensors.index.json -o model.pt\n"
		    "  tersor convert big.pt -o big.safetensors --max-shard-size 5G\n",
	.opts = opts,
	.long_work = true,
	.reports = true,
	.operands_min = 1,
	.operands_max = 4096,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
