/* SPDX-License-Identifier: Apache-2.0 */
/* tersor verify: check all of a file that can be checked. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/coding.h"
#include "cli/directories.h"
#include "cli/directory_report.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/parts/parting.h"
#include "cli/work.h"
#include "compare/comparison.h"
#include "report/render/format.h"
#include "report/losses.h"
#include "report/value_differences.h"
#include "text/json.h"

struct args {
	struct cli_common common;
	struct cli_list against, max_error;
	bool allow_nonfinite, strict;
};

/* Tensors at fault that are listed without -v. */
#define FAULTS_SHOWN 5u

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("against", "ORIG", CLI_LIST, against, "@file",
		"compare with the file that was packed; may be repeated"),
	CLI_OPT("max-error", "METRIC=VALUE", CLI_LIST, max_error,
		"abs= ulp= rel= nmse= cosine= update-nmse=",
		"with --against: the largest error allowed in any tensor: abs, ulp, rel, nmse, "
		"cosine (1 - cosine similarity), or update-nmse (of m / (sqrt(v) + eps))"),
	CLI_OPT_FLAG("allow-nonfinite", allow_nonfinite, "accept NaN and infinite values"),
	CLI_OPT_FLAG("strict", strict, "fail if a record has no checksum"),
	{ 0 }
};

static void print_report(const struct args *a, const struct tsr_verification *v)
{
	const struct tsr_checkpoint *c = v->checked;
	uint64_t planes = 0, nbytes = 0, nonfinite = 0, shown = 0;

	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		const struct tsr_verified_tensor *r = &v->tensors[i];

		planes += t->nplanes;
		nbytes += tsr_tensor_stored_nbytes(c, t);
		nonfinite += r->nonfinite;
		shown += r->fault && !a->common.verbose;
		if (!a->common.verbose && (!r->fault || shown > FAULTS_SHOWN))
			continue;
		printf("%-7s %-40s %s\n", r->fault ? "FAULT" : "ok",
		       tsr_format_name(t->name, 40).text, r->fault ? r->fault : "");
	}
	if (shown > FAULTS_SHOWN)
		printf("FAULT   and %" PRIu64 " more tensors (-v lists all)\n",
		       shown - FAULTS_SHOWN);
	printf("%s: %zu tensors, %s read\n", tsr_format_name(c->path, 40).text, c->ntensors,
	       tsr_format_bytes((double)nbytes).text);
	if (c->packed)
		printf("  %" PRIu64 " planes have the hash that was recorded\n", planes);
	else if (v->nchecksums)
		printf("  %" PRIu64 " records have the CRC-32 that was recorded\n", v->nchecksums);
	else
		printf("  no hashes in this format: the data itself cannot be checked\n");
	printf("  %" PRIu64 " non-finite values\n", nonfinite);
	if (v->nfaults)
		printf("  %" PRIu64 " tensor%s at fault\n", v->nfaults, v->nfaults == 1 ? "" : "s");
	else if (v->original && !v->besides.ndiffering)
		printf("  raw tensors equal the original's, errors are as recorded\n");
	if (v->original) {
		const struct tsr_losses losses = tsr_losses_of_verification(v);
		struct tsr_text lines = { 0 };

		tsr_besides_put_text(&v->besides, a->common.verbose, &lines);
		(void)cli_write_report(&lines, NULL);
		cli_print_losses(&losses);
	}
}

static void put_tensor(struct tsr_text *json, const void *result, size_t i)
{
	const struct tsr_verification *v = result;
	const struct tsr_verified_tensor *r = &v->tensors[i];

	tsr_json_put_u64(json, "nonfinite", r->nonfinite);
	tsr_json_put_string(json, "fault", r->fault);
	if (v->original && r->measure.n)
		cli_json_measure(json, &r->measure);
	tsr_update_put_json(&r->update, json);
}

/* The members that describe one file. */
static void put_file(struct tsr_text *json, const struct tsr_verification *v)
{
	const struct tsr_checkpoint *c = v->checked;

	tsr_json_put_string(json, "file", c->path);
	tsr_json_put_string(json, "kind", c->packed ? "packed" : tsr_container_name(c->container));
	tsr_json_put_u64(json, "checksums", v->nchecksums);
	tsr_json_put_u64(json, "unchecked", c->nunchecked);
	tsr_json_put_bool(json, "hashes_checked", c->packed);
	tsr_json_put_u64(json, "faults", v->nfaults);
	if (v->original) {
		const struct tsr_losses losses = tsr_losses_of_verification(v);

		tsr_losses_put_json(&losses, json);
		tsr_besides_put_json(&v->besides, json);
	}
	cli_json_tensors(json, c, put_tensor, v);
}

/* Of several files one that could not be read has an error instead. */
static void put_one_of_several(struct tsr_text *json, const char *path,
			       const struct tsr_verification *v, const struct tsr_err *err)
{
	tsr_json_open(json, NULL, '{');
	if (v) {
		put_file(json, v);
	} else {
		tsr_json_put_string(json, "file", path);
		tsr_json_put_string(json, "error", err->msg);
	}
	tsr_json_close(json, '}');
}

/* Whether a part of several files goes on: who joins says what is wrong with one. */
static bool is_said_by_join(enum tsr_status status)
{
	return status == TSR_PART_DONE || status == TSR_E_FORMAT || status == TSR_E_UNSUPPORTED ||
	       status == TSR_E_LIMIT || status == TSR_E_BOUND;
}

/* Verify one file; *status_ret becomes the worst so far.  False if none is to follow. */
static bool verify_one(const struct cli_cmd *cmd, const struct args *a, const char *path,
		       const struct tsr_verify_options *o, struct tsr_text *json, int *status_ret)
{
	struct tsr_verification *v = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status verified;
	struct cli_work work;
	int status = cli_work_open(&work, cmd, &a->common, "verifying");

	if (status != CLI_OK) {
		*status_ret = status;
		return false;
	}
	verified = tsr_verify(path, o, &work.run, &v, &err);
	cli_work_end(&work);
	if (tsr_part_is_of_files(cli_parts()) && tsr_part_is_one(cli_parts()) &&
	    is_said_by_join(verified)) {
		tsr_verification_free(v);
		return !cli_signal();
	}
	/* What is wrong as a whole comes before the tensors. */
	if (verified != TSR_OK)
		status = cli_error(&err);
	if (v)
		cli_warn_notes(&a->common, v->checked);
	if (v && cli_wants_text(&a->common))
		print_report(a, v);
	if (a->common.json.given && a->common.operands.n > 1)
		put_one_of_several(json, path, v, &err);
	else if (a->common.json.given && v)
		put_file(json, v);
	*status_ret = status > *status_ret ? status : *status_ret;
	/* Without a verification nothing of a single file is reported. */
	if (!v && a->common.operands.n == 1)
		return false;
	tsr_verification_free(v);
	return !cli_signal();
}

/* After the last of several files: a part writes its report. */
static int end_files(void)
{
	struct tsr_err err = { 0 };

	tsr_part_end_files(cli_parts());
	return tsr_part_end(cli_parts(), &err) == TSR_OK ? CLI_OK : cli_error(&err);
}

static int verify(const struct cli_cmd *cmd, const struct args *a,
		  const struct tsr_verify_options *o)
{
	const struct cli_list *files = &a->common.operands;
	struct tsr_text json = { 0 };
	int status = CLI_OK, reported = CLI_OK;
	bool ok = true;

	cli_json_begin(&json, cmd);
	if (files->n > 1)
		tsr_json_open(&json, "files", '[');
	for (unsigned i = 0; i < files->n && ok; i++) {
		if (files->n > 1)
			tsr_part_next_file(cli_parts());
		ok = verify_one(cmd, a, files->items[i], o, &json, &status);
	}
	if (files->n > 1)
		tsr_json_close(&json, ']');
	if (files->n > 1 && ok && tsr_part_is_one(cli_parts())) {
		tsr_text_free(&json);
		return status == CLI_OK ? end_files() : status;
	}
	tsr_part_end_files(cli_parts());
	if (a->common.json.given && ok)
		reported = cli_json_end(&json, &a->common);
	else
		tsr_text_free(&json);
	return status == CLI_OK ? reported : status;
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	struct tsr_bound bounds[CLI_BOUNDS_MAX];
	const struct tsr_verify_options o = {
		.size = sizeof(o),
		.against = a->against.items,
		.nagainst = a->against.n,
		.bounds = bounds,
		.nbounds = a->max_error.n,
		.allow_nonfinite = a->allow_nonfinite,
		.strict = a->strict,
		.open = &a->common.open,
	};

	CLI_TRY(cli_parse_bounds(cmd, "max-error", &a->max_error, bounds));
	if (o.nbounds && !o.nagainst)
		return cli_usage(cmd, "--max-error needs --against");
	if (o.nagainst && a->common.operands.n > 1)
		return cli_usage(cmd, "--against is for one file; found %u", a->common.operands.n);
	for (unsigned i = 0; i < a->common.operands.n; i++) {
		if (!tsr_directory_is_packed(a->common.operands.items[i]))
			continue;
		if (a->common.operands.n > 1)
			return cli_usage(cmd, "%s is a packed directory, which is verified alone",
					 a->common.operands.items[i]);
		return cli_verify_directory(cmd, &a->common, &o);
	}
	return verify(cmd, a, &o);
}

const struct cli_cmd cmd_verify = {
	.name = "verify",
	.summary = "check the structure, hashes and values of files",
	.operands = "IN...",
	.details =
		"Reads all of each file and checks what can be checked: its structure, in a packed "
		"file the header's checksum and the hash of every plane, in a .pt or .npz the "
		"CRC-32 of every record. Reports NaN and infinite values. With --against also "
		"checks that raw tensors equal the original's byte for byte, that errors are the "
		"recorded ones, and that values besides tensors are the original's. Of several "
		"files the exit status is the worst. Of a packed directory every file is checked, "
		"and missing and additional ones are named.",
	.examples = "  tersor verify packed.safetensors\n"
		    "  tersor verify packed.safetensors checkpoint.pt\n"
		    "  tersor verify packed.safetensors --against checkpoint.safetensors\n",
	.opts = opts,
	.takes = CLI_PARTS | CLI_READS | CLI_COMPUTES | CLI_WORKS | CLI_REPORTS | CLI_NUMBERS,
	.operands_min = 1,
	.operands_max = 4096,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
