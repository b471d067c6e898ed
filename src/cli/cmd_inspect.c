/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "ckpt/checkpoint_model.h"
#include "text/json.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/recording_report.h"
#include "cli/summary.h"
#include "tersor/names.h"

struct args {
	struct cli_common common;
	struct cli_input input;
};

static const struct cli_opt opts[] = { CLI_INPUT_OPTS(struct args), { 0 } };

static void print_tensor(const struct tsr_checkpoint *c, const struct tsr_tensor *t)
{
	char name[128], shape[64], coding[64], size[16];

	cli_format_name(name, sizeof(name), t->name, 30);
	cli_format_shape(shape, sizeof(shape), t->rank, t->shape);
	if (t->coding.codec)
		snprintf(coding, sizeof(coding), "%s", t->coding.codec->name);
	else
		snprintf(coding, sizeof(coding), "%s", tsr_dtype_name(t->dtype));
	cli_format_bytes(size, sizeof(size), (double)tsr_tensor_stored_nbytes(c, t));
	printf("  %-30s %-9s %-11s %-16s %8s\n", name, tsr_kind_name(t->kind), coding, shape, size);
}

static void print_report(const struct args *a, const struct tsr_checkpoint *c,
			 struct cli_summary *s)
{
	char name[128], value[128];

	cli_format_name(name, sizeof(name), c->path, 50);
	printf("%s: %s%s%s, %zu tensors", name, c->packed ? "packed " : "",
	       tsr_container_name(c->container), c->coded ? " with compressed states" : "",
	       c->ntensors);
	if (c->generation)
		printf(", %u lossy generation%s", c->generation, c->generation > 1 ? "s" : "");
	printf("\n\n");
	if (a->common.verbose) {
		for (size_t i = 0; i < c->nmeta; i++) {
			cli_format_name(name, sizeof(name), c->meta[i].key, 24);
			cli_format_name(value, sizeof(value), c->meta[i].value, 48);
			printf("  %s = %s\n", name, value);
		}
		for (size_t i = 0; i < c->ntensors; i++)
			print_tensor(c, &c->tensors[i]);
		printf("\n");
	}
	cli_summary_print(s);
	if (cli_summary_bytes_per_parameter(s) > 0)
		printf("\n%.3f bytes per parameter\n", cli_summary_bytes_per_parameter(s));
}

static int report_json(const struct cli_cmd *cmd, const struct args *a,
		       const struct tsr_checkpoint *c, struct cli_summary *s)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_put_string(&json, "file", c->path);
	tsr_json_put_string(&json, "kind", c->packed ? "packed" : tsr_container_name(c->container));
	tsr_json_put_string(&json, "container", tsr_container_name(c->container));
	tsr_json_put_u64(&json, "generation", c->generation);
	tsr_json_open(&json, "metadata", '{');
	for (size_t i = 0; i < c->nmeta; i++)
		tsr_json_put_string(&json, c->meta[i].key, c->meta[i].value);
	tsr_json_close(&json, '}');
	cli_summary_json(s, &json);
	tsr_json_open(&json, "tensors", '[');
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		tsr_json_open(&json, NULL, '{');
		cli_json_tensor(&json, t);
		tsr_json_put_u64(&json, "stored_nbytes", tsr_tensor_stored_nbytes(c, t));
		if (t->error) {
			tsr_json_open(&json, "error", '{');
			for (unsigned m = 0; m < TSR_METRIC_COUNT; m++)
				tsr_json_put_double(&json, tsr_metric_name((enum tsr_metric)m),
						    t->error->value[m]);
			tsr_json_close(&json, '}');
		}
		tsr_json_close(&json, '}');
	}
	tsr_json_close(&json, ']');
	return cli_json_end(&json, &a->common);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct args *a = args;
	struct cli_summary summary = { 0 };
	struct tsr_checkpoint *c = NULL;
	struct cli_inputs inputs;
	struct tsr_err err = { 0 };
	int status = cli_parse_input(cmd, &a->input, &inputs);
	enum tsr_status opened;

	if (status != CLI_OK)
		return status;
	if (a->common.operands.n == 1 && tsr_recording_probe(a->common.operands.items[0])) {
		status = cli_inspect_recording(cmd, &a->common, a->common.operands.items[0],
					       &inputs.open);
		cli_input_free(&inputs);
		return status;
	}
	opened = tsr_checkpoint_open(a->common.operands.items, a->common.operands.n, &inputs.open,
				     &c, &err);
	cli_input_free(&inputs);
	if (opened != TSR_OK)
		return cli_error(&err);
	if (tsr_names_assign(c, NULL, 0, &err) != TSR_OK) {
		tsr_checkpoint_close(c);
		return cli_error(&err);
	}
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		cli_summary_add(&summary, t, tsr_tensor_stored_nbytes(c, t),
				t->error ? t->error->value[TSR_METRIC_NMSE] : -1);
	}
	cli_warn_notes(&a->common, c);
	if (cli_wants_text(&a->common))
		print_report(a, c, &summary);
	if (a->common.json.given)
		status = report_json(cmd, a, c, &summary);
	tsr_checkpoint_close(c);
	return status;
}

const struct cli_cmd cmd_inspect = {
	.name = "inspect",
	.summary = "what a checkpoint or recording holds, from headers",
	.operands = "IN...",
	.details =
		"Shows tensors, kinds, codecs and bytes per parameter of safetensors files, "
		"packed or not, in shards or not, .pt files, directories of "
		"torch.distributed.checkpoint, .npz and .npy. Reads headers only, so it is as fast "
		"on 100 GB as on 100 kB. With -v every tensor and the metadata. Of a recording of "
		"gradients it shows groups, hyperparameters, steps and learning rates.",
	.examples = "  tersor inspect packed.safetensors\n"
		    "  tersor inspect -v checkpoint.safetensors\n"
		    "  tersor inspect --json=report.json packed.safetensors\n"
		    "  tersor inspect -v recording\n",
	.opts = opts,
	.reports = true,
	.operands_min = 1,
	.operands_max = 4096,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
