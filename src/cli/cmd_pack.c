/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "ckpt/checkpoint_model.h"
#include "text/json.h"
#include "cli/coding.h"
#include "cli/device.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/summary.h"
#include "tersor/pack.h"

#define RULES_MAX 256

struct args {
	struct cli_common common;
	struct cli_input input;
	bool written; /* set when done */
	const char *output, *weights, *momentum, *variance, *scale, *compat, *device;
	uint64_t group, max_shard, seed;
	struct cli_list keep, map, max_error;
	bool strict, force, dry_run;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	{ "output", 'o', "OUT", CLI_STRING, AT(output), 0, 0, "@file", "the packed file to write" },
	{ "weights", 0, "CODEC", CLI_STRING, AT(weights), 0, 0, "@weight",
	  "codec of weights (default bf16+ulp8)" },
	{ "momentum", 0, "CODEC", CLI_STRING, AT(momentum), 0, 0, "@momentum",
	  "codec of momenta (default softsign8)" },
	{ "variance", 0, "CODEC", CLI_STRING, AT(variance), 0, 0, "@variance",
	  "codec of variances (default sqrt8)" },
	{ "scale", 0, "FORMAT", CLI_STRING, AT(scale), 0, 0, "e8m8 f16 f32",
	  "how scales are stored: e8m8 (default), f16 or f32" },
	{ "group", 0, "N", CLI_NUMBER, AT(group), 1, TSR_GROUP_MAX, NULL,
	  "elements that share a scale (default 32)" },
	{ "seed", 0, "N", CLI_NUMBER, AT(seed), 0, TSR_JSON_INT_MAX, NULL,
	  "of the random rounding of bf16+sr<k> and fp16+sr<k> (default 0)" },
	{ "keep", 0, "REGEX", CLI_LIST, AT(keep), 0, 0, NULL,
	  "keep tensors with a matching name as they are" },
	{ "map", 0, "REGEX=KIND", CLI_LIST, AT(map), 0, 0, NULL,
	  "tensors with a matching name are weight, momentum, variance or other" },
	{ "max-error", 0, "METRIC=VALUE", CLI_LIST, AT(max_error), 0, 0,
	  "abs= ulp= rel= nmse= cosine=",
	  "fail and write nothing if any tensor's error is larger: abs, ulp, rel, nmse, or cosine "
	  "(of 1 - cosine)" },
	{ "strict", 0, NULL, CLI_FLAG, AT(strict), 0, 0, NULL,
	  "fail if a tensor has values that its codec cannot take" },
	{ "compat", 0, "NAME", CLI_STRING, AT(compat), 0, 0, "flashoptim",
	  "flashoptim: f16 scales, as that library computes them" },
	{ "max-shard-size", 0, "SIZE", CLI_NUMBER, AT(max_shard), 1, UINT64_MAX, NULL,
	  "write shards of at most SIZE bytes of data, and an index" },
	CLI_INPUT_OPTS(struct args),
	{ "device", 0, "DEVICE", CLI_STRING, AT(device), 0, 0, "auto cpu cuda",
	  "where to encode and decode: cpu or cuda[:N] (auto, the default, is cpu)" },
	{ "force", 'f', NULL, CLI_FLAG, AT(force), 0, 0, NULL, "replace an existing OUT" },
	{ "dry-run", 0, NULL, CLI_FLAG, AT(dry_run), 0, 0, NULL,
	  "show the plan; read headers only, write nothing" },
	{ 0 }
};

/* The options' codings into `o`. */
static int parse_codings(const struct cli_cmd *cmd, const struct args *a,
			 struct tsr_pack_options *o)
{
	struct {
		const char *name;
		enum tsr_kind kind;
		struct tsr_coding *coding;
	} choices[] = {
		{ a->weights, TSR_KIND_WEIGHT, &o->weight },
		{ a->momentum, TSR_KIND_MOMENTUM, &o->momentum },
		{ a->variance, TSR_KIND_VARIANCE, &o->variance },
	};
	enum tsr_scale scale = TSR_SCALE_E8M8;

	if (a->compat && strcmp(a->compat, "flashoptim") != 0)
		return cli_usage(cmd, "unknown --compat '%s', expected flashoptim", a->compat);
	if (a->compat)
		scale = TSR_SCALE_F16;
	if (a->scale) {
		const int status = cli_parse_scale(cmd, a->scale, &scale);

		if (status != CLI_OK)
			return status;
	}
	if (a->compat && scale != TSR_SCALE_F16)
		return cli_usage(cmd, "--compat flashoptim needs --scale f16");
	for (unsigned i = 0; i < 3; i++) {
		int status = CLI_OK;

		if (choices[i].name)
			status = cli_parse_codec(cmd, choices[i].name, choices[i].kind,
						 &choices[i].coding->codec);
		if (status != CLI_OK)
			return status;
		choices[i].coding->scale = scale;
		choices[i].coding->group = a->group ? (uint32_t)a->group : TSR_GROUP_DEFAULT;
	}
	if (a->seed && !o->weight.codec->stochastic)
		return cli_usage(cmd, "--seed needs --weights bf16+sr<k> or fp16+sr<k>");
	o->weight.seed = a->seed;
	return CLI_OK;
}

/* --keep and --map, in this order.  Splits the strings of --map in place. */
static int parse_rules(const struct cli_cmd *cmd, const struct args *a, struct tsr_name_rule *rules,
		       unsigned *n_ret)
{
	unsigned n = 0;

	if (a->keep.n + a->map.n > RULES_MAX)
		return cli_usage(cmd, "more than %d --keep and --map options", RULES_MAX);
	for (unsigned i = 0; i < a->keep.n; i++)
		rules[n++] = (struct tsr_name_rule){ a->keep.items[i], TSR_KIND_OTHER };
	for (unsigned i = 0; i < a->map.n; i++) {
		char *equals = strrchr((char *)a->map.items[i], '=');
		enum tsr_kind kind;

		if (!equals || !tsr_kind_find(equals + 1, &kind))
			return cli_usage(cmd,
					 "option --map: found '%s', expected REGEX=KIND with "
					 "weight, momentum, "
					 "variance or other",
					 a->map.items[i]);
		*equals = '\0';
		rules[n++] = (struct tsr_name_rule){ a->map.items[i], kind };
	}
	*n_ret = n;
	return CLI_OK;
}

static void print_tensor(const struct tsr_tensor *t, const struct tsr_packed_tensor *r)
{
	char name[128], shape[64], coding[64];

	cli_format_name(name, sizeof(name), t->name, 34);
	cli_format_shape(shape, sizeof(shape), t->rank, t->shape);
	cli_format_coding(coding, sizeof(coding), &t->coding);
	printf("  %-34s %-16s %-18s", name, shape, coding);
	if (t->coding.codec && r->measure.n)
		printf(" %7.1e", tsr_measure_value(&r->measure, TSR_METRIC_NMSE));
	printf("\n");
	if (t->weight) {
		cli_format_name(name, sizeof(name), t->weight, 60);
		printf("    %s of %s\n", tsr_kind_name(t->kind), name);
	}
}

static void summarize(const struct tsr_packing *p, struct cli_summary *s)
{
	for (size_t i = 0; i < p->source->ntensors; i++) {
		const struct tsr_tensor *t = &p->source->tensors[i];
		const struct tsr_packed_tensor *r = &p->tensors[i];
		const bool measured = t->coding.codec && r->measure.n;

		cli_summary_add(s, t, r->nbytes,
				!measured ? -1
				: r->measure.exact == r->measure.n
					? 0
					: tsr_measure_value(&r->measure, TSR_METRIC_NMSE));
	}
}

static void print_report(const struct args *a, const struct tsr_packing *p, struct cli_summary *s)
{
	const uint64_t out = p->header_nbytes + p->data_nbytes;
	char size[16], name[128];

	if (a->common.verbose) {
		for (size_t i = 0; i < p->source->ntensors; i++)
			print_tensor(&p->source->tensors[i], &p->tensors[i]);
		printf("\n");
	}
	cli_summary_print(s);
	cli_format_bytes(size, sizeof(size), (double)out);
	cli_format_name(name, sizeof(name), a->output, 40);
	printf("\n%s: %s%s, %.1f%% of the input's data", name, size,
	       a->dry_run   ? " planned"
	       : a->written ? ""
			    : " not written",
	       s->total.nbytes ? 100.0 * (double)out / (double)s->total.nbytes : 100.0);
	if (s->nparameters || cli_summary_bytes_per_parameter(s) > 0)
		printf(", %.3f bytes per parameter", cli_summary_bytes_per_parameter(s));
	printf("\n");
	if (s->total.worst && s->total.worst_nmse > 0) {
		cli_format_name(name, sizeof(name), s->total.worst->name, 50);
		printf("largest error: NMSE %.2e in %s\n", s->total.worst_nmse, name);
	}
}

static int report_json(const struct cli_cmd *cmd, const struct args *a, const struct tsr_packing *p,
		       struct cli_summary *s)
{
	struct tsr_text json = { 0 };
	char reason[120];

	cli_json_begin(&json, cmd);
	tsr_json_open(&json, "inputs", '[');
	for (unsigned i = 0; i < a->common.operands.n; i++)
		tsr_json_put_string(&json, NULL, a->common.operands.items[i]);
	tsr_json_close(&json, ']');
	tsr_json_put_string(&json, "output", a->output);
	tsr_json_put_bool(&json, "dry_run", a->dry_run);
	tsr_json_put_bool(&json, "written", a->written);
	tsr_json_put_u64(&json, "generation", p->generation);
	tsr_json_put_u64(&json, "header_nbytes", p->header_nbytes);
	tsr_json_put_u64(&json, "data_nbytes", p->data_nbytes);
	cli_summary_json(s, &json);
	tsr_json_open(&json, "tensors", '[');
	for (size_t i = 0; i < p->source->ntensors; i++) {
		const struct tsr_tensor *t = &p->source->tensors[i];
		const struct tsr_packed_tensor *r = &p->tensors[i];

		tsr_json_open(&json, NULL, '{');
		cli_json_tensor(&json, t);
		tsr_json_put_u64(&json, "stored_nbytes", r->nbytes);
		tsr_raw_reason_text(r, reason, sizeof(reason));
		if (r->raw != TSR_RAW_NO)
			tsr_json_put_string(&json, "raw_reason", reason);
		else
			tsr_json_put_null(&json, "raw_reason");
		if (t->coding.codec && r->measure.n) {
			tsr_json_put_u64(&json, "scale_underflow", r->report.scale_underflow);
			cli_json_measure(&json, &r->measure);
		}
		tsr_json_close(&json, '}');
	}
	tsr_json_close(&json, ']');
	return cli_json_end(&json, &a->common);
}

static void warn(const struct args *a, const struct tsr_packing *p)
{
	char reason[120];
	uint64_t underflow = 0;

	cli_warn_notes(&a->common, p->source);
	for (size_t i = 0; i < p->source->ntensors; i++) {
		underflow += p->tensors[i].report.scale_underflow;
		if (p->tensors[i].raw == TSR_RAW_NO)
			continue;
		tsr_raw_reason_text(&p->tensors[i], reason, sizeof(reason));
		cli_warn(&a->common, "%s: tensor %s: found %s, kept raw", p->source->path,
			 p->source->tensors[i].name, reason);
	}
	if (underflow)
		cli_warn(&a->common,
			 "%s: %llu groups lost their state to scales below FP16's range; --scale "
			 "e8m8 keeps them",
			 p->source->path, (unsigned long long)underflow);
	if (p->generation >= 2)
		cli_warn(&a->common,
			 "%s: lossy generation %u: these values went through a lossy codec before",
			 p->source->path, p->generation);
}

static int pack(const struct cli_cmd *cmd, struct args *a, const struct tsr_pack_options *o)
{
	struct cli_summary summary = { 0 };
	struct tsr_packing *p = NULL;
	struct cli_progress progress;
	struct tsr_run run = cli_run_start(&progress, &a->common, "packing");
	struct tsr_err err = { 0 };
	enum tsr_status packed;
	int status = cli_open_gpu(cmd, &a->common, a->device, "packing", &run.gpu);

	if (status != CLI_OK)
		return status;
	packed = tsr_pack(a->common.operands.items, a->common.operands.n, a->output, o, &run, &p,
			  &err);
	cli_run_end(&progress);
	tsr_gpu_close(run.gpu);
	if (!p)
		return cli_error(&err);
	summarize(p, &summary);
	a->written = packed != TSR_E_BOUND && !a->dry_run;
	if (packed == TSR_OK)
		warn(a, p);
	if (cli_wants_text(&a->common))
		print_report(a, p, &summary);
	if (a->common.json.given)
		status = report_json(cmd, a, p, &summary);
	tsr_packing_free(p);
	return packed == TSR_OK ? status : cli_error(&err);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct args *a = args;
	struct tsr_pack_options o = tsr_pack_defaults();
	struct tsr_name_rule rules[RULES_MAX];
	struct tsr_bound bounds[CLI_BOUNDS_MAX];
	struct cli_inputs inputs;
	int status;

	if (!a->output)
		return cli_usage(cmd, "no output; give it with -o OUT");
	status = parse_codings(cmd, a, &o);
	if (status == CLI_OK)
		status = parse_rules(cmd, a, rules, &o.nrules);
	if (status == CLI_OK)
		status = cli_parse_bounds(cmd, "max-error", &a->max_error, bounds);
	if (status == CLI_OK)
		status = cli_parse_input(cmd, &a->input, &inputs);
	if (status != CLI_OK)
		return status;
	o.open = &inputs.open;
	o.max_shard_nbytes = a->max_shard;
	o.rules = rules;
	o.bounds = bounds;
	o.nbounds = a->max_error.n;
	o.strict = a->strict;
	o.force = a->force;
	o.dry_run = a->dry_run;
	status = pack(cmd, a, &o);
	cli_input_free(&inputs);
	return status;
}

const struct cli_cmd cmd_pack = {
	.name = "pack",
	.summary = "FP32 checkpoint to split weights and 8-bit optimizer state",
	.operands = "IN...",
	.details =
		"Packs the FP32 tensors of one or more inputs into one packed file, which any "
		"safetensors reader opens as a BF16 model. Inputs are safetensors, in shards or "
		"not, .pt files, directories of torch.distributed.checkpoint, .npz and .npy, told "
		"by their content. Weights, momenta and variances are told apart by their names "
		"(see -v); everything else passes through untouched. Each tensor is decoded again "
		"and its error reported.",
	.examples = "  tersor pack checkpoint.safetensors -o packed.safetensors\n"
		    "  tersor pack checkpoint.pt -o packed.safetensors\n"
		    "  tersor pack model.safetensors optimizer.safetensors -o packed.safetensors\n"
		    "  tersor pack in.safetensors -o out.safetensors --max-error nmse=1e-4\n",
	.opts = opts,
	.long_work = true,
	.reports = true,
	.operands_min = 1,
	.operands_max = 4096,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
