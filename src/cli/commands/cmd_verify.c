/* SPDX-License-Identifier: Apache-2.0 */
/* tersor verify: check all of a file that can be checked. */

#include "cli/operations.h"
#include "cli/files.h"
#include "cli/parts/parting.h"
#include "compare/comparison.h"

struct args {
	struct cli_common common;
	struct cli_list against, max_error;
	struct tsr_verify_options o;
};

/* Tensors at fault that are listed without -v. */
#define FAULTS_SHOWN 5u

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("against", "ORIG", CLI_LIST, against, "@file"),
	CLI_OPT("max-error", "METRIC=VALUE", CLI_LIST, max_error,
		"abs= ulp= rel= nmse= cosine= update-nmse= weight-step=", .needs = "against"),
	CLI_OPT("allow-nonfinite", NULL, CLI_FLAG, o.allow_nonfinite, NULL),
	CLI_OPT("strict", NULL, CLI_FLAG, o.strict, NULL),
	{ 0 }
};

/* Rows for all tensors, of which text has those at fault, or with -v all. */
static struct tsr_table list_tensors(const struct tsr_report *r, const struct tsr_verification *v,
				     uint64_t *nfaults_ret)
{
	struct tsr_table t = { 0 };

	*nfaults_ret = 0;
	for (size_t i = 0; i < v->checked->ntensors; i++) {
		const struct tsr_verified_tensor *x = &v->tensors[i];

		*nfaults_ret += x->fault != NULL;
		if (!r->wants_json && !r->verbose && !x->fault)
			continue;
		cli_put_tensor(&t, &v->checked->tensors[i]);
		TSR_CELL(&t, "-state", ":7", x->fault ? "FAULT" : "ok");
		TSR_CELL(&t, "nonfinite", NULL, x->nonfinite);
		TSR_CELL(&t, "fault", ":8|", x->fault);
		if (v->original && x->measure.n)
			cli_put_measured(&t, &x->measure);
		tsr_update_put(&t, &x->update);
		tsr_put_aside(&t, !x->fault || *nfaults_ret > FAULTS_SHOWN ? TSR_TO_TEXT : 0);
	}
	return t;
}

/* What was checked of the file as a whole. */
static void put_checks(struct tsr_text *out, const struct tsr_verification *v)
{
	const struct tsr_checkpoint *c = v->checked;
	uint64_t planes = 0, nbytes = 0, nonfinite = 0;

	for (size_t i = 0; i < c->ntensors; i++) {
		planes += c->tensors[i].nplanes;
		nbytes += tsr_tensor_stored_nbytes(c, &c->tensors[i]);
		nonfinite += v->tensors[i].nonfinite;
	}
	tsr_text_printf(out, "%s: %zu tensors, %s read\n", tsr_format_name(c->path, 40).text,
			c->ntensors, tsr_format_bytes((double)nbytes).text);
	if (c->packed)
		tsr_text_printf(out, "  %" PRIu64 " planes have the hash that was recorded\n",
				planes);
	else if (v->nchecksums)
		tsr_text_printf(out, "  %" PRIu64 " records have the CRC-32 that was recorded\n",
				v->nchecksums);
	else
		tsr_text_puts(out, "  no hashes in this format: the data itself cannot be "
				   "checked\n");
	tsr_text_printf(out, "  %" PRIu64 " non-finite values\n", nonfinite);
	if (v->nfaults)
		tsr_text_printf(out, "  %s at fault\n",
				tsr_format_number(v->nfaults, "tensor").text);
	else if (v->original && !v->besides.ndiffering)
		tsr_text_puts(out, "  raw tensors equal the original's, errors are as recorded\n");
}

/* The lines and members that describe one file. */
static void put_checked(struct tsr_report *r, const struct tsr_verification *v,
			const struct tsr_losses *losses)
{
	const struct tsr_checkpoint *c = v->checked;
	uint64_t nfaults;
	struct tsr_table tensors = list_tensors(r, v, &nfaults);

	tsr_json_put_string(&r->json, "file", c->path);
	tsr_json_put_string(&r->json, "kind",
			    c->packed ? "packed" : tsr_container_name(c->container));
	tsr_json_put_u64(&r->json, "checksums", v->nchecksums);
	tsr_json_put_u64(&r->json, "unchecked", c->nunchecked);
	tsr_json_put_bool(&r->json, "hashes_checked", c->packed);
	tsr_json_put_u64(&r->json, "faults", v->nfaults);
	tsr_moments_put_json(&v->moments, &r->json);
	tsr_report_lines(r, &tensors, "-state,name,fault");
	if (!r->verbose && nfaults > FAULTS_SHOWN)
		tsr_text_printf(&r->text, "FAULT   and %" PRIu64 " more tensors (-v lists all)\n",
				nfaults - FAULTS_SHOWN);
	put_checks(&r->text, v);
	if (v->original) {
		tsr_losses_put_json(losses, &r->json);
		tsr_besides_put_json(&v->besides, &r->json);
		tsr_besides_put_text(&v->besides, r->verbose, &r->text);
		tsr_losses_put_text(losses, &r->text);
	}
	tsr_report_rows(r, tensors, "tensors", NULL);
}

/* Verify one file; *status_ret becomes the worst so far.  False if none is to follow. */
static bool verify_one(const struct cli_cmd *cmd, const struct args *a, const char *path,
		       struct tsr_report *r, int *status_ret)
{
	const bool several = a->common.operands.n > 1;
	struct tsr_verification *v = NULL;
	enum tsr_status verified;
	struct cli_work work;
	int status = cli_work_open(&work, cmd, &a->common, "verifying"), printed = CLI_OK;

	if (status != CLI_OK) {
		*status_ret = status;
		return false;
	}
	verified = cli_work_end(&work, tsr_verify(path, &a->o, &work.run, &v, &work.err));
	/* A part of several files goes on: the joining process says what is wrong with one. */
	if (tsr_part_is_of_files(cli_parts()) && tsr_part_is_one(cli_parts()) &&
	    (verified == TSR_PART_DONE || verified == TSR_E_FORMAT ||
	     verified == TSR_E_UNSUPPORTED || verified == TSR_E_LIMIT || verified == TSR_E_BOUND)) {
		tsr_verification_free(v);
		return !cli_signal();
	}
	/* What is wrong as a whole comes before the tensors. */
	if (verified != TSR_OK)
		status = cli_error(&work.err);
	/* One that could not be read has an error instead of figures. */
	tsr_json_open(&r->json, NULL, '{');
	if (v) {
		const struct tsr_losses losses = tsr_losses_of_verification(v);

		cli_warn_notes(&a->common, v->checked);
		cli_warn_updates(&a->common, v->checked->path, &losses);
		put_checked(r, v, &losses);
	} else {
		tsr_json_put_string(&r->json, "file", path);
		tsr_json_put_string(&r->json, "error", work.err.msg);
	}
	tsr_json_close(&r->json, '}');
	if (r->wants_text)
		printed = cli_print_report(&a->common, &r->text);
	status = printed > status ? printed : status;
	*status_ret = status > *status_ret ? status : *status_ret;
	/* Without a verification nothing of a single file is reported. */
	if (!v && !several)
		return false;
	tsr_verification_free(v);
	return !cli_signal();
}

static int verify(const struct cli_cmd *cmd, const struct args *a)
{
	const struct cli_list *files = &a->common.operands;
	struct tsr_report r = cli_report(cmd, &a->common, NULL);
	const bool several = files->n > 1;
	int status = CLI_OK, reported;
	bool ok = true;

	tsr_json_open(&r.json, "files", '[');
	for (unsigned i = 0; i < files->n && ok; i++) {
		if (several)
			tsr_part_next_file(cli_parts());
		ok = verify_one(cmd, a, files->items[i], &r, &status);
	}
	tsr_json_close(&r.json, ']');
	tsr_part_end_files(cli_parts());
	if (several && ok && tsr_part_is_one(cli_parts())) {
		r.wants_json = false;
		(void)cli_end_report(&r, &a->common);
		return status == CLI_OK ? cli_part_write() : status;
	}
	r.wants_json = r.wants_json && ok;
	reported = cli_end_report(&r, &a->common);
	return status == CLI_OK ? reported : status;
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct args *a = args;
	struct tsr_bound bounds[CLI_BOUNDS_MAX];
	struct tsr_verify_options *o = &a->o;

	o->size = sizeof(*o);
	o->against = a->against.items;
	o->nagainst = a->against.n;
	o->bounds = bounds;
	o->open = &a->common.open;
	CLI_TRY(cli_parse_bounds(cmd, &a->max_error, true, bounds, &o->nbounds));
	if (o->nagainst && a->common.operands.n > 1)
		return cli_usage(cmd, "--against is for one file; found %u", a->common.operands.n);
	for (unsigned i = 0; i < a->common.operands.n; i++) {
		if (!tsr_directory_is_packed(a->common.operands.items[i]))
			continue;
		if (a->common.operands.n > 1)
			return cli_usage(cmd, "%s is a packed directory, which is verified alone",
					 a->common.operands.items[i]);
		return cli_verify_directory(cmd, &a->common, o);
	}
	return verify(cmd, a);
}

TSR_EMBED(help_verify, "man/help/verify.txt");

const struct cli_cmd cmd_verify = {
	.name = "verify",
	.summary = "check the structure, hashes and values of files",
	.operands = "IN...",
	.help = help_verify,
	.opts = opts,
	.takes = CLI_PARTS | CLI_READS | CLI_COMPUTES | CLI_WORKS | CLI_REPORTS | CLI_NUMBERS,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
