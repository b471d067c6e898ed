/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/json.h"
#include "cli/coding.h"
#include "cli/device.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/replay_options.h"
#include "cli/replay_table.h"
#include "report/replay_report.h"
#include "gpu/gpu_work.h"

#define AT(field) offsetof(struct cli_replay_args, field)

static const struct cli_opt opts[] = {
	{ "output", 'o', "OUT", CLI_STRING, AT(output), 0, 0, "@file",
	  "the checkpoint to write; without it there is only the report" },
	{ "optimizer", 0, "NAME", CLI_STRING, AT(optimizer), 0, 0, "sgd sgdw adam adamw lion",
	  "sgd, sgdw, adam, adamw or lion (default: the recording's)" },
	{ "lr", 0, "X", CLI_STRING, AT(lr), 0, 0, NULL, "learning rate of every step and group" },
	{ "schedule", 0, "FILE", CLI_STRING, AT(schedule), 0, 0, "@file",
	  "learning rates, a line STEP LR per step" },
	{ "betas", 0, "B1,B2", CLI_STRING, AT(betas), 0, 0, NULL, "of adam, adamw and lion" },
	{ "eps", 0, "X", CLI_STRING, AT(eps), 0, 0, NULL, "of adam and adamw" },
	{ "weight-decay", 0, "X", CLI_STRING, AT(weight_decay), 0, 0, NULL,
	  "of every group; L2 for sgd and adam" },
	{ "nesterov", 0, NULL, CLI_FLAG, AT(nesterov), 0, 0, NULL, "of sgd and sgdw" },
	{ "decouple-lr", 0, NULL, CLI_FLAG, AT(decouple_lr), 0, 0, NULL,
	  "weights shrink by weight_decay * lr / initial_lr" },
	{ "hyper", 0, "NAME=X", CLI_LIST, AT(hyper), 0, 0,
	  "lr= initial_lr= beta1= beta2= eps= weight_decay= momentum= dampening= nesterov= "
	  "decouple_lr=",
	  "any hyperparameter of every group: momentum, dampening, initial_lr, ..." },
	{ "state", 0, "FORM", CLI_STRING, AT(state), 0, 0, "fp32 flash flashoptim",
	  "fp32; flash: bf16+ulp8, softsign8 and sqrt8; flashoptim: with f16 scales (default: as "
	  "the checkpoint is)" },
	{ "weights", 0, "CODEC", CLI_STRING, AT(codec[TSR_PART_WEIGHT]), 0, 0, "@weight",
	  "codec of weights" },
	{ "momentum", 0, "CODEC", CLI_STRING, AT(codec[TSR_PART_MOMENTUM]), 0, 0, "@momentum",
	  "codec of momenta" },
	{ "variance", 0, "CODEC", CLI_STRING, AT(codec[TSR_PART_VARIANCE]), 0, 0, "@variance",
	  "codec of variances" },
	{ "scale", 0, "FORMAT", CLI_STRING, AT(scale), 0, 0, "e8m8 f16 f32",
	  "how scales are stored: e8m8, f16 or f32" },
	{ "group", 0, "N", CLI_NUMBER, AT(group), 1, TSR_GROUP_MAX, NULL,
	  "elements that share a scale (default 32)" },
	{ "seed", 0, "N", CLI_NUMBER, AT(seed), 0, TSR_JSON_INT_MAX, NULL,
	  "of the random rounding of bf16+sr<k> and fp16+sr<k> (default 0)" },
	{ "compat", 0, "NAME", CLI_STRING, AT(compat), 0, 0, "flashoptim pytorch",
	  "whose order of operations: pytorch, or flashoptim, which --state flashoptim implies" },
	{ "steps", 0, "A..B", CLI_STRING, AT(steps), 0, 0, NULL,
	  "replay steps A to B only; either may be left out" },
	{ "count", 0, "N", CLI_STRING, AT(count), 0, 0, NULL,
	  "steps that the state has seen (default: what the checkpoint says)" },
	{ "zero-state", 0, NULL, CLI_FLAG, AT(zero_state), 0, 0, NULL,
	  "start from zero momentum and variance, at the first step" },
	{ "on-nonfinite", 0, "WHAT", CLI_STRING, AT(on_nonfinite), 0, 0, "fail skip",
	  "a gradient with NaN or infinity: fail (default), or skip its step" },
	{ "on-missing", 0, "WHAT", CLI_STRING, AT(on_missing), 0, 0, "skip fail",
	  "a parameter without a gradient at a step: skip (default), which does not step it, as in "
	  "PyTorch; or fail" },
	{ "compare", 0, "WITH", CLI_STRING, AT(compare), 0, 0, "fp32",
	  "fp32: replay in FP32, too, and report how far the two part" },
	{ "gate", 0, "FIGURE=VALUE", CLI_LIST, AT(gate), 0, 0,
	  "weight-ulp= weight-nmse= weight-cosine= momentum-nmse= variance-nmse= momentum-quant= "
	  "variance-quant= update-nmse= update-norm= stalled= underflow= variance-lost= "
	  "update-quant=",
	  "exit 1 and write nothing if a figure of any tensor is larger at any step; implies "
	  "--compare fp32" },
	{ "check-numerics", 0, NULL, CLI_FLAG, AT(check_numerics), 0, 0, NULL,
	  "warn of learning rates too small to move the largest weights" },
	{ "csv", 0, "FILE", CLI_OPTIONAL, AT(csv), 0, 0, "@report",
	  "print figures per step and tensor, or write them to FILE; implies --compare fp32, as do "
	  "--svg and --html" },
	{ "svg", 0, "FILE", CLI_STRING, AT(svg), 0, 0, "@report", "draw the figures over steps" },
	{ "html", 0, "FILE", CLI_STRING, AT(html), 0, 0, "@report",
	  "write a page with figures and tables" },
	{ "to", 0, "CONTAINER", CLI_STRING, AT(to), 0, 0, "safetensors pt npz npy flashoptim",
	  "write FP32, whatever the state, as safetensors, pt, npz or npy; or flashoptim" },
	{ "max-shard-size", 0, "SIZE", CLI_NUMBER, AT(max_shard), 1, UINT64_MAX, NULL,
	  "write safetensors shards of at most SIZE bytes of data, and an index" },
	{ "map", 0, "REGEX=KIND", CLI_LIST, AT(map), 0, 0, NULL,
	  "tensors with a matching name are weight, momentum, variance or other" },
	CLI_INPUT_OPTS(struct cli_replay_args),
	{ "device", 0, "DEVICE", CLI_STRING, AT(device), 0, 0, "auto cpu cuda",
	  "auto, cpu, cuda (the first GPU) or cuda:N" },
	{ "force", 'f', NULL, CLI_FLAG, AT(force), 0, 0, NULL, "replace an existing OUT" },
	{ "dry-run", 0, NULL, CLI_FLAG, AT(dry_run), 0, 0, NULL,
	  "show the plan; read headers only, write nothing" },
	{ 0 }
};

/* --- Reports ---------------------------------------------------------------------------------- */

static int check_reports(const struct cli_cmd *cmd, const struct cli_replay_args *a,
			 struct cli_replay_parsed *parsed)
{
	const char *const paths[] = { a->common.json.value, a->csv.value, a->svg, a->html };
	struct tsr_err err;

	if (a->csv.given && !a->csv.value && a->common.json.given && !a->common.json.value)
		return cli_usage(cmd, "--csv and --json both on the standard output");
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		if (!paths[i])
			continue;
		if (cli_check_report(paths[i], &err) != TSR_OK)
			return cli_usage(cmd, "cannot write a report: %s%s", err.msg,
					 cli_hint(&err));
		parsed->reports[parsed->options.nreports++] = paths[i];
	}
	return CLI_OK;
}

static int report_file(const struct tsr_replay *r, const char *path,
		       void (*put)(const struct tsr_replay *r, struct tsr_text *text))
{
	struct tsr_text text = { 0 };

	if (!path)
		return CLI_OK;
	put(r, &text);
	return cli_write_report(&text, path);
}

static int report_json(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		       const struct tsr_replay *r, bool written)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_open(&json, "inputs", '[');
	for (unsigned i = 0; i < a->common.operands.n; i++)
		tsr_json_put_string(&json, NULL, a->common.operands.items[i]);
	tsr_json_close(&json, ']');
	if (a->output)
		tsr_json_put_string(&json, "output", a->output);
	else
		tsr_json_put_null(&json, "output");
	tsr_json_put_bool(&json, "dry_run", a->dry_run);
	tsr_json_put_bool(&json, "written", written);
	tsr_replay_put_json(r, &json);
	return cli_json_end(&json, &a->common);
}

static int report(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		  const struct tsr_replay *r, bool written)
{
	int status = CLI_OK;

	cli_warn_notes(&a->common, r->source);
	if (r->nskipped)
		cli_warn(&a->common, "%zu of %zu steps skipped: their gradients are not finite",
			 r->nskipped, r->nsteps);
	if (cli_wants_text(&a->common) && !(a->csv.given && !a->csv.value))
		cli_replay_table(r, &a->common);
	if (a->csv.given) {
		struct tsr_text csv = { 0 };

		tsr_replay_put_csv(r, &csv);
		status = cli_write_report(&csv, a->csv.value);
	}
	if (status == CLI_OK)
		status = report_file(r, a->svg, tsr_replay_put_svg);
	if (status == CLI_OK)
		status = report_file(r, a->html, tsr_replay_put_html);
	if (status == CLI_OK && a->common.json.given)
		status = report_json(cmd, a, r, written);
	return status;
}

/* --- The command ------------------------------------------------------------------------------ */

/* "cuda" is the first GPU: a replay takes one. */
static int choose_device(const struct cli_cmd *cmd, const char *device,
			 struct tsr_replay_options *o)
{
	struct cli_device one;
	unsigned index;
	int status;

	if (device && tsr_gpu_parse(device, &index) && (o->compare || o->check_numerics))
		return cli_usage(cmd, "%s runs on the CPU: leave --device %s out",
				 o->compare ? "--compare" : "--check-numerics", device);
	status = cli_choose_device(cmd, device && strcmp(device, "cuda") == 0 ? "cuda:0" : device,
				   false, &one);
	if (status != CLI_OK)
		return status;
	if (one.ngpus)
		o->gpu = (int)one.gpus[0];
	else
		o->gpu = device && strcmp(device, "cpu") == 0 ? TSR_REPLAY_CPU : TSR_REPLAY_AUTO;
	return CLI_OK;
}

static void say_device(const struct cli_replay_args *a, const struct tsr_replay *r)
{
	struct cli_device one = { .ngpus = r->gpu >= 0 };

	if (one.ngpus)
		one.gpus[0] = (unsigned)r->gpu;
	if (!a->dry_run)
		cli_say_device(&a->common, "replayed", &one);
}

static int replay(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		  const struct tsr_replay_options *o)
{
	const unsigned n = a->common.operands.n;
	struct tsr_replay *r = NULL;
	struct cli_progress progress;
	struct tsr_run run = cli_run_start(&progress, &a->common, "replaying");
	struct tsr_err err = { 0 };
	const enum tsr_status replayed = tsr_replay(a->common.operands.items, n - 1,
						    a->common.operands.items[n - 1], a->output, o,
						    &run, &r, &err);
	int status;

	cli_run_end(&progress);
	if (!r)
		return cli_error(&err);
	say_device(a, r);
	status = report(cmd, a, r, a->output && replayed != TSR_E_BOUND && !a->dry_run);
	tsr_replay_free(r);
	return replayed == TSR_OK ? status : cli_error(&err);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct cli_replay_args *a = args;
	struct cli_replay_parsed parsed;
	struct cli_inputs inputs;
	int status = cli_replay_parse(cmd, a, &parsed);

	if (status == CLI_OK)
		status = choose_device(cmd, a->device, &parsed.options);
	if (status == CLI_OK)
		status = check_reports(cmd, a, &parsed);
	if (status == CLI_OK)
		status = cli_parse_input(cmd, &a->input, &inputs);
	if (status != CLI_OK)
		return status;
	parsed.options.open = &inputs.open;
	parsed.options.reports = parsed.reports;
	status = replay(cmd, a, &parsed.options);
	cli_input_free(&inputs);
	return status;
}

const struct cli_cmd cmd_replay = {
	.name = "replay",
	.summary = "optimizer steps again, from recorded gradients",
	.operands = "CKPT... RECORDING",
	.details =
		"Steps the checkpoint with the gradients that a run recorded, in FP32 or with the "
		"state in a compressed form, and writes the checkpoint that comes out. With "
		"--compare fp32 both are replayed, and how far they part is reported per step and "
		"tensor. Optimizer, hyperparameters and learning rates are the recording's unless "
		"options say otherwise. Several inputs of one checkpoint come first, the recording "
		"last. The result does not depend on threads or processor.",
	.examples =
		"  tersor replay checkpoint.pt recording -o after.pt\n"
		"  tersor replay checkpoint.pt recording --state flash --compare fp32\n"
		"  tersor replay packed.safetensors recording -o after.safetensors\n"
		"  tersor replay checkpoint.pt recording --state flash --gate update-nmse=0.25\n",
	.opts = opts,
	.long_work = true,
	.reports = true,
	.operands_min = 2,
	.operands_max = 4096,
	.args_nbytes = sizeof(struct cli_replay_args),
	.run = run,
};
