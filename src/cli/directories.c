/* SPDX-License-Identifier: Apache-2.0 */
/* What commands do with a directory that is packed file by file. */
#include "cli/directories.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/directory_report.h"
#include "cli/input.h"
#include "cli/commands/nothing_packed.h"
#include "cli/output.h"
#include "cli/parts/parting.h"
#include "cli/work.h"
#include "io/dir.h"
#include "io/file.h"
#include "names/copies/copies.h"
#include "report/render/format.h"
#include "tersor/names.h"
#include "text/json.h"

/* --- Pack ------------------------------------------------------------------------------------- */

bool cli_packs_directory(const struct cli_common *common)
{
	return common->operands.n == 1 && tsr_dir_is(common->operands.items[0]) &&
	       !tsr_dir_name_ends_with(common->output, ".safetensors");
}

struct packing {
	const struct cli_common *common;
	const struct cli_packing_report *how;
	bool coded;
	struct tsr_kept_raw kept;
	struct cli_directory_totals totals;
};

/* Add the tensors of one file, as its header has them. */
static int add_file(const struct cli_common *common, const struct tsr_directory_entry *e,
		    struct cli_directory_totals *totals)
{
	char *path = tsr_path_join(common->operands.items[0], e->stored[e->nstored - 1].path);
	const char *const paths[] = { path };
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status status;

	if (!path)
		return cli_fail(CLI_IO, "out of memory");
	status = tsr_checkpoint_open(paths, 1, &common->open, &c, &err);
	free(path);
	/* Why a copy was not packed can be that its tensors cannot be read. */
	if (status != TSR_OK)
		return e->as == TSR_STORED_COPY ? CLI_OK : cli_error(&err);
	(void)tsr_names_assign(c, NULL, 0, NULL);
	tsr_summary_add_all(&totals->summary, c);
	(void)tsr_copies_add(&totals->summary.copies, c, NULL);
	cli_directory_keep_worst(totals, e->path);
	tsr_checkpoint_close(c);
	return CLI_OK;
}

static void on_packed(void *ctx, const struct tsr_directory_entry *e, const struct tsr_packing *p)
{
	struct packing *work = ctx;

	/* Whether tensors in the form of another tool would be packed says nothing. */
	if (!tsr_packing_source(p)->coded)
		tsr_kept_raw_add(&work->kept, p);
	if (e->as == TSR_STORED_PACKED) {
		work->how->warn(work->common, p);
		work->how->summarize(p, &work->totals.summary);
		cli_directory_keep_worst(&work->totals, e->path);
	} else {
		(void)add_file(work->common, e, &work->totals);
	}
}

/* @coded: planes are entropy coded, which no plan knows the outcome of. */
static void print_sizes(const struct tsr_directory *d, const struct cli_common *common,
			const struct tsr_summary *s, bool coded)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(d);
	const double per_parameter = tsr_summary_bytes_per_parameter(s);

	printf("%s: %zu packed, %zu copied; %s", cli_output_name(common, 30).text, sizes.npacked,
	       sizes.ncopied, tsr_format_bytes((double)sizes.nbytes).text);
	printf(" to %s%s, %.1f%%\n", tsr_format_bytes((double)sizes.stored_nbytes).text,
	       !common->dry_run ? ""
	       : coded		? " planned before coding"
				: " planned",
	       sizes.nbytes ? 100.0 * (double)sizes.stored_nbytes / (double)sizes.nbytes : 100.0);
	if (per_parameter > 0)
		printf("%.3f bytes per parameter\n", per_parameter);
}

static int report_packing(const struct cli_cmd *cmd, struct packing *work,
			  const struct tsr_directory *d)
{
	const struct cli_common *common = work->common;
	struct cli_directory_totals *totals = &work->totals;
	struct tsr_text json = { 0 }, lines = { 0 };
	int status = CLI_OK;

	tsr_copies_add_flat(&totals->summary.copies);
	if (cli_wants_text(common)) {
		status = cli_directory_print(d, totals);
		print_sizes(d, common, &totals->summary, work->coded);
		if (totals->summary.total.worst && totals->summary.total.worst_nmse > 0) {
			printf("largest error: NMSE %.2e in %s", totals->summary.total.worst_nmse,
			       tsr_format_name(totals->worst_name, 45).text);
			printf("\n  of %s\n", tsr_format_name(totals->worst_file, 70).text);
		}
		tsr_losses_put_text(&totals->summary.losses, &lines);
		tsr_choices_put_text(&totals->summary.choices, &lines);
		if (cli_write_report(&lines, NULL) != CLI_OK)
			status = CLI_IO;
	}
	if (!common->json.given)
		return status;
	cli_json_begin_part(&json, cmd, "directory");
	cli_json_inputs(&json, common);
	cli_json_output(&json, common);
	tsr_losses_put_json(&totals->summary.losses, &json);
	tsr_choices_put_json(&totals->summary.choices, &json);
	cli_directory_put_json(&json, d, totals);
	return cli_json_end(&json, common);
}

int cli_pack_directory(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_pack_options *o, const struct cli_packing_report *how)
{
	struct packing work = { .common = common, .how = how, .coded = o->coded != TSR_CODED_NONE };
	const struct tsr_directory_watch watch = { .size = sizeof(watch),
						   .ctx = &work,
						   .packed = on_packed };
	struct tsr_directory *d = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status packed;
	struct cli_work bar;
	int status;

	if (common->max_shard)
		return cli_usage(cmd, "--max-shard-size splits one packed file, not a directory");
	if (cli_write_options(common, NULL).container != TSR_CONTAINER_COUNT)
		return cli_usage(cmd,
				 "a directory is packed into a directory, and %s has the name of a "
				 "file; one packed file needs a name that ends in .safetensors",
				 common->output);
	CLI_TRY(cli_work_open(&bar, cmd, common, "packing"));
	packed = tsr_pack_directory(common->operands.items[0], common->output, o, &watch, &bar.run,
				    &d, &err);
	cli_work_end(&bar);
	if (!d)
		return cli_error(&err);
	status = report_packing(cmd, &work, d);
	if (packed == TSR_OK && status == CLI_OK && !cli_directory_sizes(d).npacked)
		status = cli_nothing_packed(common, o->strict, &work.kept, d);
	tsr_directory_close(d);
	return packed == TSR_OK ? status : cli_error(&err);
}

/* --- Unpack ----------------------------------------------------------------------------------- */

struct unpacking {
	const struct cli_common *common;
	struct cli_directory_totals totals;
};

static void on_unpacked(void *ctx, const struct tsr_directory_entry *e,
			const struct tsr_unpacking *u)
{
	struct unpacking *work = ctx;

	cli_warn_notes(work->common, tsr_unpacking_source(u));
	tsr_summary_add_all(&work->totals.summary, tsr_unpacking_source(u));
	cli_directory_keep_worst(&work->totals, e->path);
}

static int report_unpacking(const struct cli_cmd *cmd, const struct unpacking *work,
			    const struct tsr_directory *d)
{
	const struct cli_common *common = work->common;
	const struct cli_directory_sizes sizes = cli_directory_sizes(d);
	const struct tsr_directory_entry *e;
	struct tsr_text json = { 0 };

	for (size_t i = 0;
	     cli_wants_text(common) && common->verbose && (e = tsr_directory_entry(d, i)); i++) {
		if (e->as != TSR_STORED_DIRECTORY)
			printf("  %-60s %-8s %8s\n", tsr_format_name(e->path, 60).text,
			       e->as == TSR_STORED_PACKED ? "unpacked" : "copied",
			       tsr_format_bytes((double)e->nbytes).text);
	}
	if (cli_wants_text(common))
		printf("%s: %zu file%s unpacked, %zu copied, %s%s\n",
		       cli_output_name(common, 40).text, sizes.npacked,
		       sizes.npacked == 1 ? "" : "s", sizes.ncopied,
		       tsr_format_bytes((double)sizes.nbytes).text,
		       common->dry_run ? " planned" : "");
	if (cli_wants_text(common) && work->totals.summary.total.worst_nmse > 0)
		printf("  largest error when it was packed: NMSE %.2e in %s\n  of %s\n",
		       work->totals.summary.total.worst_nmse,
		       tsr_format_name(work->totals.worst_name, 32).text,
		       tsr_format_name(work->totals.worst_file, 70).text);
	if (!common->json.given)
		return CLI_OK;
	cli_json_begin_part(&json, cmd, "directory");
	tsr_json_put_string(&json, "input", common->operands.items[0]);
	cli_json_output(&json, common);
	cli_directory_put_json(&json, d, NULL);
	return cli_json_end(&json, common);
}

int cli_unpack_directory(const struct cli_cmd *cmd, const struct cli_common *common,
			 const struct tsr_write_options *o)
{
	struct unpacking work = { .common = common };
	const struct tsr_directory_watch watch = { .size = sizeof(watch),
						   .ctx = &work,
						   .unpacked = on_unpacked };
	struct tsr_directory *d = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status unpacked;
	struct cli_work bar;
	int status;

	CLI_TRY(cli_work_open(&bar, cmd, common, "unpacking"));
	unpacked = tsr_unpack_directory(common->operands.items[0], common->output, o, &watch,
					&bar.run, &d, &err);
	cli_work_end(&bar);
	if (!d)
		return cli_error(&err);
	if (tsr_directory_remark(d))
		cli_warn(common, "%s", tsr_directory_remark(d));
	status = report_unpacking(cmd, &work, d);
	tsr_directory_close(d);
	return unpacked == TSR_OK ? status : cli_error(&err);
}

/* --- Inspect ---------------------------------------------------------------------------------- */

static int report_inspection(const struct cli_cmd *cmd, const struct cli_common *common,
			     const struct tsr_directory *d, struct cli_directory_totals *totals)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(d);
	struct tsr_text json = { 0 };

	tsr_copies_add_flat(&totals->summary.copies);
	if (cli_wants_text(common)) {
		printf("%s: packed directory, %zu packed, %zu copied\n\n",
		       tsr_format_name(tsr_directory_path(d), 30).text, sizes.npacked,
		       sizes.ncopied);
		CLI_TRY(cli_directory_print(d, totals));
		printf("%s to %s", tsr_format_bytes((double)sizes.nbytes).text,
		       tsr_format_bytes((double)sizes.stored_nbytes).text);
		if (tsr_summary_bytes_per_parameter(&totals->summary) > 0)
			printf(", %.3f bytes per parameter",
			       tsr_summary_bytes_per_parameter(&totals->summary));
		printf("\n");
	}
	if (!common->json.given)
		return CLI_OK;
	cli_json_begin_part(&json, cmd, "directory");
	tsr_json_put_string(&json, "input", tsr_directory_path(d));
	cli_directory_put_json(&json, d, totals);
	return cli_json_end(&json, common);
}

int cli_inspect_directory(const struct cli_cmd *cmd, const struct cli_common *common)
{
	struct cli_directory_totals totals = { .worst_name = "" };
	const struct tsr_directory_entry *e;
	struct tsr_directory *d = NULL;
	struct tsr_err err = { 0 };
	int status = CLI_OK;

	if (tsr_directory_open(common->operands.items[0], &d, &err) != TSR_OK)
		return cli_error(&err);
	for (size_t i = 0; status == CLI_OK && (e = tsr_directory_entry(d, i)); i++) {
		if (e->as == TSR_STORED_PACKED || e->reason)
			status = add_file(common, e, &totals);
	}
	if (status == CLI_OK)
		status = report_inspection(cmd, common, d, &totals);
	tsr_directory_close(d);
	return status;
}

/* --- Verify and diff -------------------------------------------------------------------------- */

/* @losses: NULL if nothing was compared with an original. */
static int report_check(const struct cli_cmd *cmd, const struct cli_common *common,
			const struct tsr_directory *d, const struct tsr_losses *losses)
{
	const struct cli_list *in = &common->operands;
	struct tsr_text json = { 0 };

	cli_json_begin_part(&json, cmd, "directory");
	tsr_json_put_strings(&json, "inputs", in->items, in->n);
	tsr_json_put_string(&json, "remark", tsr_directory_remark(d));
	if (losses)
		tsr_losses_put_json(losses, &json);
	cli_directory_put_json(&json, d, NULL);
	return cli_json_end(&json, common);
}

struct verifying {
	const struct cli_common *common;
	bool against;
	struct tsr_losses losses; /* of all files, against their originals */
};

static void on_verified(void *ctx, const struct tsr_directory_entry *e,
			const struct tsr_verification *v)
{
	struct verifying *work = ctx;

	(void)e;
	cli_warn_notes(work->common, tsr_verification_checked(v));
	if (work->against) {
		const struct tsr_losses losses = tsr_losses_of_verification(v);

		tsr_losses_merge(&work->losses, &losses);
	}
}

static void print_verified(const struct verifying *work, const struct tsr_directory *d)
{
	const struct cli_common *common = work->common;
	const struct cli_directory_sizes sizes = cli_directory_sizes(d);

	if (tsr_directory_remark(d))
		printf("%s\n", tsr_directory_remark(d));
	if (!tsr_directory_remark(d) || common->verbose)
		cli_directory_print_faults(common, d, "FAULT");
	printf("%s: %zu packed file%s and %zu cop%s, %s read\n",
	       tsr_format_name(tsr_directory_path(d), 40).text, sizes.npacked,
	       sizes.npacked == 1 ? "" : "s", sizes.ncopied, sizes.ncopied == 1 ? "y" : "ies",
	       tsr_format_bytes((double)sizes.stored_nbytes).text);
	if (tsr_directory_nfaults(d))
		printf("  %zu at fault\n", tsr_directory_nfaults(d));
	else
		printf("  every file is there and has the hashes that were recorded\n");
	if (work->against && !tsr_directory_nfaults(d))
		printf("  copies and raw tensors equal the original's, errors are as recorded\n");
	if (work->against)
		cli_print_losses(&work->losses);
}

int cli_verify_directory(const struct cli_cmd *cmd, const struct cli_common *common,
			 const struct tsr_verify_options *o)
{
	struct verifying work = { .common = common, .against = o->nagainst };
	const struct tsr_directory_watch watch = { .size = sizeof(watch),
						   .ctx = &work,
						   .verified = on_verified };
	struct tsr_directory *d = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status verified;
	struct cli_work bar;
	int status = CLI_OK;

	CLI_TRY(cli_work_open(&bar, cmd, common, "verifying"));
	verified = tsr_verify_directory(common->operands.items[0], o, &watch, &bar.run, &d, &err);
	cli_work_end(&bar);
	if (!d)
		return cli_error(&err);
	if (cli_wants_text(common))
		print_verified(&work, d);
	if (common->json.given)
		status = report_check(cmd, common, d, work.against ? &work.losses : NULL);
	tsr_directory_close(d);
	return verified == TSR_OK ? status : cli_error(&err);
}

bool cli_diffs_directories(const struct cli_common *common)
{
	const char *a = common->operands.items[0], *b = common->operands.items[1];

	return tsr_dir_is(a) && tsr_dir_is(b) &&
	       (tsr_directory_is_packed(a) || tsr_directory_is_packed(b));
}

static void on_compared(void *ctx, const struct tsr_directory_entry *e,
			const struct tsr_comparison *c)
{
	const struct cli_common *common = ctx;

	(void)e;
	if (common->verbose && cli_wants_text(common))
		printf("%s: %zu tensors compared, %" PRIu64 " differ\n",
		       tsr_format_name(e->path, 40).text, tsr_comparison_ntensors(c),
		       tsr_comparison_ndiffering(c));
}

void cli_print_other_files(const struct cli_common *common, const struct tsr_directory *d)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(d);

	cli_directory_print_faults(common, d, "differs");
	if (sizes.ncopied || tsr_directory_nfaults(d))
		printf("%zu other file%s compared: %zu differ\n", sizes.ncopied,
		       sizes.ncopied == 1 ? "" : "s", tsr_directory_nfaults(d));
}

int cli_diff_directory(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_diff_options *o)
{
	const struct tsr_directory_watch watch = { .size = sizeof(watch),
						   .ctx = (void *)common,
						   .compared = on_compared };
	struct tsr_directory *d = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status compared;
	struct cli_work bar;
	bool differ;
	int status = CLI_OK;

	CLI_TRY(cli_work_open(&bar, cmd, common, "comparing"));
	compared = tsr_diff_directory(common->operands.items[0], common->operands.items[1], o,
				      &watch, &bar.run, &d, &err);
	cli_work_end(&bar);
	if (!d)
		return cli_error(&err);
	if (cli_wants_text(common)) {
		const struct cli_directory_sizes sizes = cli_directory_sizes(d);

		cli_directory_print_faults(common, d, "differs");
		printf("%zu file%s compared: %zu differ\n", sizes.npacked + sizes.ncopied,
		       sizes.npacked + sizes.ncopied == 1 ? "" : "s", tsr_directory_nfaults(d));
	}
	if (common->json.given)
		status = report_check(cmd, common, d, NULL);
	differ = tsr_directory_nfaults(d) != 0;
	tsr_directory_close(d);
	if (compared != TSR_OK)
		return cli_error(&err);
	return status == CLI_OK && differ ? CLI_DIFFERS : status;
}
