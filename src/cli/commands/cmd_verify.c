/* SPDX-License-Identifier: Apache-2.0 */
/* tersor verify: check all of a file that can be checked. */

#include "cli/operations.h"
#include "cli/files.h"
#include "cli/parts/parting.h"
#include "report/checkpoints/checkpoint_reports.h"

struct args {
	struct cli_common common;
	struct cli_list against, max_error;
	struct tsr_verify_options o;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("against", "ORIG", CLI_LIST, against, "@file"),
	CLI_OPT("max-error", "METRIC=VALUE", CLI_LIST, max_error,
		"abs= ulp= rel= nmse= cosine= update-nmse= weight-step=", .needs = "against"),
	CLI_OPT("allow-nonfinite", NULL, CLI_FLAG, o.allow_nonfinite, NULL),
	CLI_OPT("strict", NULL, CLI_FLAG, o.strict, NULL),
	{ 0 }
};

/* Verify one file; *status_ret becomes the worst so far.  False if none is to follow. */
static bool verify_one(const struct cli_cmd *cmd, const struct args *a, const char *path,
		       struct tsr_report *r, int *status_ret)
{
	const bool several = a->common.operands.n > 1;
	TSR_OWNED(tsr_verification_free) struct tsr_verification *v = NULL;
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
	     verified == TSR_E_UNSUPPORTED || verified == TSR_E_LIMIT || verified == TSR_E_BOUND))
		return !cli_signal();
	/* What is wrong as a whole comes before the tensors. */
	if (verified != TSR_OK)
		status = cli_error(&work.err);
	/* One that could not be read has an error instead of figures. */
	tsr_json_open(&r->json, NULL, '{');
	if (v) {
		const struct tsr_lost lost = tsr_lost_in_verification(v);

		cli_warn_notes(&a->common, v->checked);
		cli_warn_updates(&a->common, v->checked->path, &lost);
		tsr_verification_report(v, &lost, r);
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
	return (v || several) && !cli_signal();
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
