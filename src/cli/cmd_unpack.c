/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "ckpt/checkpoint_model.h"
#include "text/json.h"
#include "cli/coding.h"
#include "cli/device.h"
#include "cli/input.h"
#include "cli/output.h"
#include "tersor/pack.h"

struct args {
	struct cli_common common;
	struct cli_input input;
	const char *output, *to, *device;
	uint64_t max_shard;
	bool force, dry_run;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	{ "output", 'o', "OUT", CLI_STRING, AT(output), 0, 0, "@file", "the file to write" },
	{ "to", 0, "CONTAINER", CLI_STRING, AT(to), 0, 0, "safetensors pt npz npy",
	  "safetensors, pt, npz or npy; by default what OUT's name ends in, or what was packed" },
	{ "max-shard-size", 0, "SIZE", CLI_NUMBER, AT(max_shard), 1, UINT64_MAX, NULL,
	  "write safetensors shards of at most SIZE bytes of data, and an index" },
	CLI_INPUT_OPTS(struct args),
	{ "device", 0, "DEVICE", CLI_STRING, AT(device), 0, 0, "auto cpu cuda",
	  "where to decode: cpu or cuda[:N] (auto, the default, is cpu)" },
	{ "force", 'f', NULL, CLI_FLAG, AT(force), 0, 0, NULL, "replace an existing OUT" },
	{ "dry-run", 0, NULL, CLI_FLAG, AT(dry_run), 0, 0, NULL,
	  "show the plan; read the header only, write nothing" },
	{ 0 }
};

static void print_report(const struct args *a, const struct tsr_unpacking *u)
{
	char name[128], shape[64], coding[64], size[16];

	for (size_t i = 0; a->common.verbose && i < u->source->ntensors; i++) {
		const struct tsr_tensor *t = &u->source->tensors[i];

		cli_format_name(name, sizeof(name), t->name, 36);
		cli_format_shape(shape, sizeof(shape), t->rank, t->shape);
		cli_format_coding(coding, sizeof(coding), &t->coding);
		printf("  %-36s %-4s %-16s from %s\n", name, tsr_dtype_name(t->dtype), shape,
		       coding);
	}
	cli_format_bytes(size, sizeof(size), (double)u->nbytes);
	cli_format_name(name, sizeof(name), a->output, 40);
	printf("%s: %zu tensors, %s%s", name, u->source->ntensors, size,
	       a->dry_run ? " planned" : "");
	if (u->source->generation)
		printf(", %u lossy generation%s", u->source->generation,
		       u->source->generation > 1 ? "s" : "");
	printf("\n");
}

static int report_json(const struct cli_cmd *cmd, const struct args *a,
		       const struct tsr_unpacking *u)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_put_string(&json, "input", a->common.operands.items[0]);
	tsr_json_put_string(&json, "output", a->output);
	tsr_json_put_bool(&json, "dry_run", a->dry_run);
	tsr_json_put_u64(&json, "generation", u->source->generation);
	tsr_json_put_u64(&json, "nbytes", u->nbytes);
	tsr_json_open(&json, "tensors", '[');
	for (size_t i = 0; i < u->source->ntensors; i++) {
		tsr_json_open(&json, NULL, '{');
		cli_json_tensor(&json, &u->source->tensors[i]);
		tsr_json_close(&json, '}');
	}
	tsr_json_close(&json, ']');
	return cli_json_end(&json, &a->common);
}

static int unpack(const struct cli_cmd *cmd, struct args *a, const struct tsr_write_options *o)
{
	struct tsr_unpacking *u = NULL;
	struct cli_progress progress;
	struct tsr_run run = cli_run_start(&progress, &a->common, "unpacking");
	struct tsr_err err = { 0 };
	enum tsr_status unpacked;
	int status = cli_open_gpu(cmd, &a->common, a->device, "unpacking", &run.gpu);

	if (status != CLI_OK)
		return status;
	unpacked = tsr_unpack(a->common.operands.items[0], a->output, o, &run, &u, &err);
	cli_run_end(&progress);
	tsr_gpu_close(run.gpu);
	if (!u)
		return cli_error(&err);
	cli_warn_notes(&a->common, u->source);
	if (cli_wants_text(&a->common))
		print_report(a, u);
	if (a->common.json.given)
		status = report_json(cmd, a, u);
	tsr_unpacking_free(u);
	return unpacked == TSR_OK ? status : cli_error(&err);
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
	if (status == CLI_OK && o.flashoptim)
		status = cli_usage(cmd, "--to flashoptim is for convert");
	if (status == CLI_OK)
		status = cli_parse_input(cmd, &a->input, &inputs);
	if (status != CLI_OK)
		return status;
	o.max_shard_nbytes = a->max_shard;
	o.open = &inputs.open;
	o.force = a->force;
	o.dry_run = a->dry_run;
	status = unpack(cmd, a, &o);
	cli_input_free(&inputs);
	return status;
}

const struct cli_cmd cmd_unpack = {
	.name = "unpack",
	.summary = "packed checkpoint back to FP32",
	.operands = "IN",
	.details =
		"Writes the checkpoint that a packed file was made from: names, shapes, dtypes, "
		"order and metadata as they were, FP32 tensors decoded, everything else byte for "
		"byte, and in a .pt the values around the tensors too. Every plane is checked "
		"against its hash. If a lossy codec was used, the output says so in one more "
		"entry, tersor_generation. Also decodes the compressed state dicts of FlashOptim, "
		"bitsandbytes and TransformerEngine.",
	.examples = "  tersor unpack packed.safetensors -o checkpoint.safetensors\n"
		    "  tersor unpack packed.safetensors -o checkpoint.pt\n",
	.opts = opts,
	.long_work = true,
	.reports = true,
	.operands_min = 1,
	.operands_max = 1,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
