/* SPDX-License-Identifier: Apache-2.0 */
/* tersor inspect: what a checkpoint or a recording contains, from its headers. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/directories.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/recording_report.h"
#include "names/copies/copies.h"
#include "report/render/format.h"
#include "report/summary.h"
#include "tersor/names.h"
#include "text/json.h"
#include "torch/torch.h"

static void print_tensor(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	const char *coding = t->coding.codec ? t->coding.codec->name : tsr_dtype_name(t->dtype);

	printf("  %-30s %-9s %-11s %-16s %8s\n", tsr_format_name(t->name, 30).text,
	       tsr_kind_name(t->kind), coding, tsr_format_shape(t->rank, t->shape).text,
	       tsr_format_bytes((double)tsr_tensor_stored_nbytes(c, t)).text);
	if (t->quantized)
		printf("    of the quantized %s\n", tsr_format_name(t->quantized, 60).text);
}

/* The bytes of all arrays if no plane were entropy coded; 0 if none is. */
static uint64_t plain_nbytes(const struct tsr_checkpoint *c)
{
	uint64_t nbytes = 0;
	bool coded = false;

	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		for (unsigned p = t->narrow ? 1 : 0; p < t->nplanes; p++) {
			nbytes += c->arrays[t->plane[p]].nbytes;
			coded = coded || c->arrays[t->plane[p]].coded;
		}
	}
	return coded ? nbytes : 0;
}

/* What a rank has of tensors that are spread over several. */
static void print_parts(const struct tsr_checkpoint *c)
{
	struct tsr_text text = { 0 };

	if (!c->nparts)
		return;
	tsr_torch_describe_part(c->part, &text);
	for (size_t i = 0; i < c->ntensors; i++) {
		if (c->tensors[i].plane[0] == c->part->tensor.array)
			printf("%zu of them are one rank's parts: %s is %s\n", c->nparts,
			       tsr_format_name(c->tensors[i].name, 60).text,
			       text.failed ? "?" : text.bytes);
	}
	tsr_text_free(&text);
}

static int print_report(const struct cli_common *common, const struct tsr_checkpoint *c,
			struct tsr_summary *s)
{
	struct tsr_text table = { 0 }, remarks = { 0 };
	int status;

	printf("%s: %s%s%s, %zu tensors", tsr_format_name(c->path, 50).text,
	       c->packed ? "packed " : "", tsr_container_name(c->container),
	       c->coded ? " with compressed states" : "", c->ntensors);
	if (c->generation)
		printf(", %u lossy generation%s", c->generation, c->generation > 1 ? "s" : "");
	if (c->weights)
		printf(", weights in %s", tsr_format_name(c->weights, 50).text);
	if (plain_nbytes(c))
		printf(", entropy coded: %s of data before",
		       tsr_format_bytes((double)plain_nbytes(c)).text);
	printf("\n");
	for (const struct tsr_checkpoint *d = c; d->base; d = d->base)
		printf("delta at depth %u to %s\n", d->base_name.depth,
		       tsr_format_name(d->base->path, 60).text);
	print_parts(c);
	printf("\n");
	if (common->verbose) {
		for (size_t i = 0; i < c->nmeta; i++) {
			printf("  %s = %s\n", tsr_format_name(c->meta[i].key, 24).text,
			       tsr_format_name(c->meta[i].value, 48).text);
		}
		for (size_t i = 0; i < c->ntensors; i++)
			print_tensor(c, &c->tensors[i]);
		printf("\n");
	}
	tsr_summary_put_table(s, &table);
	status = cli_write_report(&table, NULL);
	if (tsr_summary_bytes_per_parameter(s) > 0)
		printf("\n%.3f bytes per parameter\n", tsr_summary_bytes_per_parameter(s));
	tsr_summary_put_remarks(s, &remarks);
	if (status == CLI_OK)
		return cli_write_report(&remarks, NULL);
	tsr_text_free(&remarks);
	return status;
}

static void put_tensor(struct tsr_text *json, const void *result, size_t i)
{
	const struct tsr_checkpoint *c = result;
	const struct tsr_tensor *t = &c->tensors[i];

	tsr_json_put_u64(json, "stored_nbytes", tsr_tensor_stored_nbytes(c, t));
	if (!t->error)
		return;
	tsr_json_open(json, "error", '{');
	for (unsigned m = 0; m < TSR_METRIC_COUNT; m++)
		tsr_json_put_double(json, tsr_metric_name((enum tsr_metric)m), t->error->value[m]);
	tsr_json_close(json, '}');
}

static void put_base(struct tsr_text *json, const struct tsr_checkpoint *c)
{
	char set[17];

	snprintf(set, sizeof(set), "%016" PRIx64, c->base_name.set);
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "file", c->base->path);
	tsr_json_put_string(json, "set", set);
	tsr_json_put_u64(json, "depth", c->base_name.depth);
	tsr_json_close(json, '}');
}

static void put_bases(struct tsr_text *json, const struct tsr_checkpoint *c)
{
	tsr_json_open(json, "bases", '[');
	for (; c->base; c = c->base)
		put_base(json, c);
	tsr_json_close(json, ']');
}

static int report_json(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_checkpoint *c, struct tsr_summary *s)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_put_string(&json, "file", c->path);
	tsr_json_put_string(&json, "kind", c->packed ? "packed" : tsr_container_name(c->container));
	tsr_json_put_string(&json, "container", tsr_container_name(c->container));
	tsr_json_put_u64(&json, "generation", c->generation);
	if (c->nparts)
		tsr_json_put_u64(&json, "parts", c->nparts);
	if (c->weights)
		tsr_json_put_string(&json, "weights", c->weights);
	if (plain_nbytes(c))
		tsr_json_put_u64(&json, "plain_nbytes", plain_nbytes(c));
	if (c->base)
		put_bases(&json, c);
	tsr_json_open(&json, "metadata", '{');
	for (size_t i = 0; i < c->nmeta; i++)
		tsr_json_put_string(&json, c->meta[i].key, c->meta[i].value);
	tsr_json_close(&json, '}');
	tsr_summary_put_json(s, &json);
	cli_json_tensors(&json, c, put_tensor, c);
	return cli_json_end(&json, common);
}

static int report(const struct cli_cmd *cmd, const struct cli_common *common,
		  const struct tsr_checkpoint *c)
{
	struct tsr_summary summary = { 0 };
	int status = CLI_OK;

	tsr_summary_add_all(&summary, c);
	(void)tsr_copies_add(&summary.copies, c, NULL);
	cli_warn_notes(common, c);
	if (cli_wants_text(common))
		status = print_report(common, c, &summary);
	return common->json.given ? report_json(cmd, common, c, &summary) : status;
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;
	const struct cli_list *in = &common->operands;
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };
	int status;

	if (in->n == 1 && tsr_recording_probe(in->items[0]))
		return cli_inspect_recording(cmd, common, in->items[0], &common->open);
	if (in->n == 1 && tsr_directory_is_packed(in->items[0]))
		return cli_inspect_directory(cmd, common);
	if (tsr_checkpoint_open(in->items, in->n, &common->open, &c, &err) != TSR_OK)
		return cli_error(&err);
	status = tsr_names_assign(c, NULL, 0, &err) == TSR_OK ? report(cmd, common, c)
							      : cli_error(&err);
	tsr_checkpoint_close(c);
	return status;
}

const struct cli_cmd cmd_inspect = {
	.name = "inspect",
	.summary = "show what a checkpoint or recording contains, from its headers",
	.operands = "IN...",
	.details =
		"Shows tensors, kinds, codecs and bytes per parameter of safetensors files, "
		"packed or not, and their shards, .pt files, directories of "
		"torch.distributed.checkpoint, .npz and .npy. Reads headers only, so it is as fast "
		"on 100 GB as on 100 kB. -v adds every tensor and the metadata. Of a recording of "
		"gradients it shows groups, hyperparameters, steps and learning rates; of a packed "
		"directory, its files.",
	.examples = "  tersor inspect packed.safetensors\n"
		    "  tersor inspect -v checkpoint.safetensors\n"
		    "  tersor inspect --json=report.json packed.safetensors\n"
		    "  tersor inspect -v recording\n",
	.takes = CLI_READS | CLI_REPORTS | CLI_NUMBERS,
	.operands_min = 1,
	.operands_max = 4096,
	.args_nbytes = sizeof(struct cli_common),
	.run = run,
};
