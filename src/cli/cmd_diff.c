/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "ckpt/checkpoint_model.h"
#include "text/json.h"
#include "cli/coding.h"
#include "cli/device.h"
#include "cli/input.h"
#include "cli/output.h"
#include "tersor/compare.h"

struct args {
	struct cli_common common;
	struct cli_input input;
	struct cli_list tol;
	const char *device;
	bool strict;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	{ "tol", 0, "METRIC=VALUE", CLI_LIST, AT(tol), 0, 0, "abs= ulp= rel= nmse= cosine=",
	  "largest difference of any tensor that still counts as "
	  "equal: abs, ulp, rel, nmse, or cosine "
	  "(of 1 - cosine); all given ones must hold" },
	{ "strict", 0, NULL, CLI_FLAG, AT(strict), 0, 0, NULL,
	  "a tensor that only one side has is always a difference" },
	CLI_INPUT_OPTS(struct args),
	{ "device", 0, "DEVICE", CLI_STRING, AT(device), 0, 0, "auto cpu cuda",
	  "where to decode: cpu or cuda[:N] (auto, the default, is cpu)" },
	{ 0 }
};

static const char *const kind_names[] = {
	[TSR_DIFF_COMPARED] = "compared",   [TSR_DIFF_ONLY_A] = "only in A",
	[TSR_DIFF_ONLY_B] = "only in B",    [TSR_DIFF_SHAPE] = "shapes differ",
	[TSR_DIFF_DTYPE] = "dtypes differ",
};

static bool differs(const struct tsr_diff_tensor *d)
{
	return !d->noted && (d->kind != TSR_DIFF_COMPARED || d->different);
}

static void print_tensor(const struct tsr_diff_tensor *d)
{
	char name[128];

	cli_format_name(name, sizeof(name), d->name, 30);
	if (d->kind != TSR_DIFF_COMPARED) {
		printf("%-30s %s\n", name, kind_names[d->kind]);
		return;
	}
	printf("%-30s %10llu", name, (unsigned long long)d->different);
	if (d->measure.n && d->nonfinite_different < d->different)
		printf(" %10u %9.2e %9.2e %7.1e", d->measure.max_ulp, (double)d->measure.max_abs,
		       tsr_measure_value(&d->measure, TSR_METRIC_MEAN_REL),
		       tsr_measure_value(&d->measure, TSR_METRIC_NMSE));
	else if (d->different)
		printf("   at element %llu", (unsigned long long)d->worst);
	if (d->nonfinite_different)
		printf(" (%llu non-finite)", (unsigned long long)d->nonfinite_different);
	printf("\n");
}

static const struct tsr_diff_tensor *worst_of(const struct tsr_comparison *r)
{
	const struct tsr_diff_tensor *worst = NULL;

	for (size_t i = 0; i < r->ntensors; i++) {
		const struct tsr_diff_tensor *d = &r->tensors[i];

		if (d->kind != TSR_DIFF_COMPARED || !d->different)
			continue;
		if (!worst || d->nonfinite_different > worst->nonfinite_different ||
		    (d->nonfinite_different == worst->nonfinite_different &&
		     tsr_measure_value(&d->measure, TSR_METRIC_NMSE) >
			     tsr_measure_value(&worst->measure, TSR_METRIC_NMSE)))
			worst = d;
	}
	return worst;
}

static void print_report(const struct args *a, const struct tsr_comparison *r)
{
	const struct tsr_diff_tensor *worst = worst_of(r);
	char name[128];

	if (r->ndiffering || a->common.verbose)
		printf("%-30s %10s %10s %9s %9s %7s\n", "tensor", "different", "max ULP", "max abs",
		       "mean rel", "NMSE");
	for (size_t i = 0; i < r->ntensors; i++) {
		if (differs(&r->tensors[i]) || a->common.verbose)
			print_tensor(&r->tensors[i]);
	}
	if (worst) {
		cli_format_name(name, sizeof(name), worst->name, 40);
		printf("\nworst: %s, element %llu", name, (unsigned long long)worst->worst);
		if (worst->measure.n)
			printf(": %.9g against %.9g", worst->worst_a, worst->worst_b);
		printf("\n");
	}
	if (r->nnoted)
		printf("%llu tensors that the other side's kind of file has no place for, or none "
		       "of: "
		       "not counted\n",
		       (unsigned long long)r->nnoted);
	printf("%zu tensors compared: %llu differ", r->ntensors - (size_t)r->nnoted,
	       (unsigned long long)r->ndiffering);
	if (a->tol.n)
		printf(", %llu beyond the tolerances", (unsigned long long)r->nexceeding);
	printf("\n");
}

static void tensor_json(struct tsr_text *json, const struct tsr_diff_tensor *d)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "name", d->name);
	tsr_json_put_string(json, "result",
			    d->kind != TSR_DIFF_COMPARED ? kind_names[d->kind]
			    : d->different		 ? "different"
							 : "equal");
	tsr_json_put_bool(json, "exceeds", d->exceeds);
	tsr_json_put_bool(json, "noted", d->noted);
	if (d->kind == TSR_DIFF_COMPARED) {
		tsr_json_put_u64(json, "different", d->different);
		tsr_json_put_u64(json, "nonfinite_different", d->nonfinite_different);
	}
	if (d->different) {
		tsr_json_put_u64(json, "worst_index", d->worst);
		tsr_json_put_double(json, "worst_a", d->worst_a);
		tsr_json_put_double(json, "worst_b", d->worst_b);
	}
	if (d->measure.n)
		cli_json_measure(json, &d->measure);
	tsr_json_close(json, '}');
}

static int report_json(const struct cli_cmd *cmd, const struct args *a,
		       const struct tsr_comparison *r)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_put_string(&json, "a", r->a->path);
	tsr_json_put_string(&json, "b", r->b->path);
	tsr_json_put_u64(&json, "differing", r->ndiffering);
	tsr_json_put_u64(&json, "exceeding", r->nexceeding);
	tsr_json_put_u64(&json, "noted", r->nnoted);
	tsr_json_open(&json, "tensors", '[');
	for (size_t i = 0; i < r->ntensors; i++)
		tensor_json(&json, &r->tensors[i]);
	tsr_json_close(&json, ']');
	return cli_json_end(&json, &a->common);
}

static int diff(const struct cli_cmd *cmd, const struct args *a, const struct tsr_diff_options *o)
{
	const char *const *operands = a->common.operands.items;
	struct tsr_comparison *r = NULL;
	struct cli_progress progress;
	struct tsr_run run = cli_run_start(&progress, &a->common, "comparing");
	struct tsr_err err = { 0 };
	enum tsr_status compared;
	bool exceeding;
	int status = cli_open_gpu(cmd, &a->common, a->device, "comparing", &run.gpu);

	if (status != CLI_OK)
		return status;
	compared = tsr_diff(&operands[0], 1, &operands[1], 1, o, &run, &r, &err);
	cli_run_end(&progress);
	tsr_gpu_close(run.gpu);
	if (compared != TSR_OK)
		return cli_error(&err);
	cli_warn_notes(&a->common, r->a);
	cli_warn_notes(&a->common, r->b);
	if (cli_wants_text(&a->common))
		print_report(a, r);
	if (a->common.json.given)
		status = report_json(cmd, a, r);
	exceeding = r->nexceeding != 0;
	tsr_comparison_free(r);
	return status == CLI_OK && exceeding ? CLI_DIFFERS : status;
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	struct tsr_bound tolerances[CLI_BOUNDS_MAX];
	struct tsr_diff_options o = { .tolerances = tolerances,
				      .ntolerances = a->tol.n,
				      .strict = a->strict };
	struct cli_inputs inputs;
	int status = cli_parse_bounds(cmd, "tol", &a->tol, tolerances);

	if (status == CLI_OK)
		status = cli_parse_input(cmd, &a->input, &inputs);
	if (status != CLI_OK)
		return status;
	o.open = &inputs.open;
	status = diff(cmd, a, &o);
	cli_input_free(&inputs);
	return status;
}

const struct cli_cmd cmd_diff = {
	.name = "diff",
	.summary = "compare two checkpoints, packed or not",
	.operands = "A B",
	.details =
		"Compares tensors of the same name: F32, F16, BF16 and packed ones by value, "
		"others by their "
		"bytes. Exits 1 if anything differs, or with --tol if a tensor differs by more. "
		"Metadata is "
		"not compared. Between different kinds of files, counters and other tensors that "
		"are no weights or states, and the states where one side has only weights, are "
		"noted and not counted if one side lacks them; --strict counts them.",
	.examples = "  tersor diff before.safetensors after.safetensors\n"
		    "  tersor diff checkpoint.safetensors packed.safetensors --tol nmse=1e-4\n",
	.opts = opts,
	.long_work = true,
	.reports = true,
	.operands_min = 2,
	.operands_max = 2,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
