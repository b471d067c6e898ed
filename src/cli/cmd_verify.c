/* SPDX-License-Identifier: Apache-2.0 */
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
	struct cli_list against, max_error;
	const char *device;
	bool allow_nonfinite, strict;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	{ "against", 0, "ORIG", CLI_LIST, AT(against), 0, 0, "@file",
	  "compare with the file that was packed (repeat it for several)" },
	{ "max-error", 0, "METRIC=VALUE", CLI_LIST, AT(max_error), 0, 0,
	  "abs= ulp= rel= nmse= cosine=",
	  "with --against: the largest error of any tensor: abs, ulp, rel, nmse, or cosine (of 1 - "
	  "cosine)" },
	{ "allow-nonfinite", 0, NULL, CLI_FLAG, AT(allow_nonfinite), 0, 0, NULL,
	  "NaN and infinite values are no fault" },
	{ "strict", 0, NULL, CLI_FLAG, AT(strict), 0, 0, NULL, "fail if a record has no checksum" },
	CLI_INPUT_OPTS(struct args),
	{ "device", 0, "DEVICE", CLI_STRING, AT(device), 0, 0, "auto cpu cuda",
	  "where to decode: cpu or cuda[:N] (auto, the default, is cpu)" },
	{ 0 }
};

static void print_report(const struct args *a, const struct tsr_verification *v)
{
	const struct tsr_checkpoint *c = v->checked;
	uint64_t planes = 0, nbytes = 0, nonfinite = 0;
	char name[128], size[16];

	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		const struct tsr_verified_tensor *r = &v->tensors[i];

		planes += t->nplanes;
		nbytes += tsr_tensor_stored_nbytes(c, t);
		nonfinite += r->nonfinite;
		if (!r->fault[0] && !a->common.verbose)
			continue;
		cli_format_name(name, sizeof(name), t->name, 40);
		printf("%-7s %-40s %s\n", r->fault[0] ? "FAULT" : "ok", name, r->fault);
	}
	cli_format_name(name, sizeof(name), c->path, 40);
	cli_format_bytes(size, sizeof(size), (double)nbytes);
	printf("%s: %zu tensors, %s read\n", name, c->ntensors, size);
	if (c->packed)
		printf("  %llu planes have the hash that was recorded\n",
		       (unsigned long long)planes);
	else if (v->nchecksums)
		printf("  %llu records have the CRC-32 that was recorded\n",
		       (unsigned long long)v->nchecksums);
	else
		printf("  no hashes in this format: the data itself cannot be checked\n");
	printf("  %llu non-finite values\n", (unsigned long long)nonfinite);
	if (v->nfaults)
		printf("  %llu tensor%s at fault\n", (unsigned long long)v->nfaults,
		       v->nfaults == 1 ? "" : "s");
	else if (v->original)
		printf("  raw tensors equal the original's, errors are as recorded\n");
}

static int report_json(const struct cli_cmd *cmd, const struct args *a,
		       const struct tsr_verification *v)
{
	const struct tsr_checkpoint *c = v->checked;
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_put_string(&json, "file", c->path);
	tsr_json_put_string(&json, "kind", c->packed ? "packed" : tsr_container_name(c->container));
	tsr_json_put_u64(&json, "checksums", v->nchecksums);
	tsr_json_put_u64(&json, "unchecked", c->nunchecked);
	tsr_json_put_bool(&json, "hashes_checked", c->packed);
	tsr_json_put_u64(&json, "faults", v->nfaults);
	tsr_json_open(&json, "tensors", '[');
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_verified_tensor *r = &v->tensors[i];

		tsr_json_open(&json, NULL, '{');
		cli_json_tensor(&json, &c->tensors[i]);
		tsr_json_put_u64(&json, "nonfinite", r->nonfinite);
		if (r->fault[0])
			tsr_json_put_string(&json, "fault", r->fault);
		else
			tsr_json_put_null(&json, "fault");
		if (v->original && r->measure.n)
			cli_json_measure(&json, &r->measure);
		tsr_json_close(&json, '}');
	}
	tsr_json_close(&json, ']');
	return cli_json_end(&json, &a->common);
}

static int verify(const struct cli_cmd *cmd, const struct args *a,
		  const struct tsr_verify_options *o)
{
	struct tsr_verification *v = NULL;
	struct cli_progress progress;
	struct tsr_run run = cli_run_start(&progress, &a->common, "verifying");
	struct tsr_err err = { 0 };
	enum tsr_status verified;
	int status = cli_open_gpu(cmd, &a->common, a->device, "verifying", &run.gpu);

	if (status != CLI_OK)
		return status;
	verified = tsr_verify(a->common.operands.items[0], o, &run, &v, &err);
	cli_run_end(&progress);
	tsr_gpu_close(run.gpu);
	if (!v)
		return cli_error(&err);
	cli_warn_notes(&a->common, v->checked);
	if (cli_wants_text(&a->common))
		print_report(a, v);
	if (a->common.json.given)
		status = report_json(cmd, a, v);
	tsr_verification_free(v);
	return verified == TSR_OK ? status : cli_error(&err);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	struct tsr_bound bounds[CLI_BOUNDS_MAX];
	struct tsr_verify_options o = {
		.against = a->against.items,
		.nagainst = a->against.n,
		.bounds = bounds,
		.nbounds = a->max_error.n,
		.allow_nonfinite = a->allow_nonfinite,
		.strict = a->strict,
	};
	struct cli_inputs inputs;
	int status = cli_parse_bounds(cmd, "max-error", &a->max_error, bounds);

	if (status != CLI_OK)
		return status;
	if (o.nbounds && !o.nagainst)
		return cli_usage(cmd, "--max-error needs --against");
	status = cli_parse_input(cmd, &a->input, &inputs);
	if (status != CLI_OK)
		return status;
	o.open = &inputs.open;
	status = verify(cmd, a, &o);
	cli_input_free(&inputs);
	return status;
}

const struct cli_cmd cmd_verify = {
	.name = "verify",
	.summary = "read all of a file and check all that can be checked",
	.operands = "IN",
	.details =
		"Checks the structure, in a packed file the header's check and the hash of every "
		"plane, in a .pt or .npz the CRC-32 of every record, and looks for NaN and "
		"infinite values. With --against also that raw tensors equal the "
		"original's byte for byte and that errors are the recorded ones.",
	.examples = "  tersor verify packed.safetensors\n"
		    "  tersor verify packed.safetensors --against checkpoint.safetensors\n",
	.opts = opts,
	.long_work = true,
	.reports = true,
	.operands_min = 1,
	.operands_max = 1,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
