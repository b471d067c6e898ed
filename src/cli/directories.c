/* SPDX-License-Identifier: Apache-2.0 */
/* What commands do with a directory that is packed file by file, and with a recording that is coded. */
#include "cli/operations.h"

#include "base/fail.h"
#include "cli/files.h"
#include "cli/parts/parting.h"
#include "io/dir.h"

/* A command on a directory, and what it found in all files. */
struct work {
	const struct cli_cmd *cmd;
	const struct cli_common *common;
	struct tsr_directory_watch watch;
	cli_warn_packing *warn; /* of pack */
	bool coded, strict, against; /* what the options say */
	const char *delta; /* the directory of bases, or NULL */
	struct cli_work bar;
	enum tsr_status done;
	struct tsr_directory *d;
	size_t ndeltas; /* files in which a plane differs from that of its base */
	struct tsr_summary summary;
	struct tsr_kept_raw kept;
	struct tsr_text lines; /* of each file */
	uint64_t elements, before,
		after; /* of gradients that were coded, and bytes of their files */
};

static const char *input_of(const struct work *w)
{
	return w->common->operands.items[0];
}

/* Before the library's function, which is given the watch, run, directory and error of the work. */
static int begin(struct work *w, const char *verb)
{
	w->watch.size = sizeof(w->watch);
	w->watch.ctx = w;
	return cli_work_open(&w->bar, w->cmd, w->common, verb);
}

static int report(struct work *w, void (*fill)(struct work *w, struct tsr_report *r))
{
	struct tsr_report r = cli_report(w->cmd, w->common, "directory");

	fill(w, &r);
	return cli_end_report(&r, w->common);
}

/* After it. */
static int end(struct work *w, enum tsr_status done,
	       void (*fill)(struct work *w, struct tsr_report *r))
{
	int status;

	w->done = cli_work_end(&w->bar, done);
	status = w->d ? report(w, fill) : CLI_OK;
	tsr_text_free(&w->lines);
	tsr_directory_close(w->d);
	return w->done == TSR_OK ? status : cli_error(&w->bar.err);
}

/* What is wrong with the directory as a whole, where the report does not say it. */
static void warn_remark(const struct work *w)
{
	if (tsr_directory_remark(w->d))
		cli_warn(w->common, "%s", tsr_directory_remark(w->d));
}

/* --- Pack and inspect ------------------------------------------------------------------------- */

bool cli_packs_directory(const struct cli_common *common)
{
	return common->operands.n == 1 && tsr_dir_is(common->operands.items[0]) &&
	       !tsr_dir_name_ends_with(common->output, ".safetensors");
}

/* Add the tensors of one file, as its header has them. */
static int add_file(struct work *w, const struct tsr_directory_entry *e)
{
	TSR_OWNED(free) char *path = tsr_path_join(input_of(w), e->stored[e->nstored - 1].path);
	const char *const paths[] = { path };
	struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status status = path ? tsr_checkpoint_open(paths, 1, &w->common->open, &c, &err)
				      : tsr_fail_nomem(&err, e->path);

	/* Why a copy was not packed can be that its tensors cannot be read. */
	if (status != TSR_OK)
		return e->as == TSR_STORED_COPY ? CLI_OK : cli_error(&err);
	(void)tsr_names_assign(c, NULL, 0, NULL);
	w->summary.file = e->path;
	tsr_summary_add_all(&w->summary, c);
	tsr_checkpoint_close(c);
	return CLI_OK;
}

static void on_packed(void *ctx, const struct tsr_directory_entry *e, const struct tsr_packing *p)
{
	struct work *w = ctx;

	/* Whether tensors in the form of another tool would be packed says nothing. */
	if (!p->source->coded)
		tsr_kept_raw_add(&w->kept, p);
	if (e->as != TSR_STORED_PACKED) {
		(void)add_file(w, e);
		return;
	}
	w->ndeltas += tsr_written_delta_differs(&p->delta, p->source->ntensors);
	w->warn(w->common, p);
	w->summary.file = e->path;
	tsr_summary_add_packing(&w->summary, p);
}

/* The table of files, and that of the tensors in them. */
static void put_tables(struct work *w, struct tsr_report *r)
{
	tsr_copies_add_flat(&w->summary.copies);
	cli_report_files(r, w->d, &w->summary, "path,stored,nbytes,stored_nbytes,-with,reason");
	tsr_report_gap(r);
	if (!w->summary.nrows)
		return;
	tsr_summary_put_table(&w->summary, r);
	tsr_summary_put_remarks(&w->summary, &r->text);
	tsr_report_gap(r);
}

/* How many files are deltas. */
static void report_deltas(const struct work *w, struct tsr_report *r)
{
	const size_t npacked = cli_directory_sizes(w->d).npacked;

	if (!w->delta || w->common->dry_run || w->done != TSR_OK)
		return;
	tsr_json_open(&r->json, "delta", '{');
	tsr_json_put_string(&r->json, "base", w->delta);
	tsr_json_put_u64(&r->json, "files", w->ndeltas);
	tsr_json_close(&r->json, '}');
	tsr_text_printf(&r->text, "delta to %s: %zu of %zu packed files differ from theirs\n",
			tsr_format_name(w->delta, 40).text, w->ndeltas, npacked);
	cli_warn_not_beside(w->common, w->delta);
	if (w->ndeltas || !npacked)
		return;
	cli_warn(w->common,
		 "%s: is no smaller than without --delta: %s has no packed file of the same name "
		 "from which one differs little",
		 w->common->output, w->delta);
	r->differs = w->strict;
}

static void report_packing(struct work *w, struct tsr_report *r)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(w->d);

	tsr_report_put_output(r);
	tsr_losses_put_json(&w->summary.losses, &r->json);
	tsr_choices_put_json(&w->summary.choices, &r->json);
	put_tables(w, r);
	tsr_text_printf(&r->text, "%s: %zu packed, %zu copied; %s", tsr_report_output(r, 30).text,
			sizes.npacked, sizes.ncopied, tsr_format_bytes((double)sizes.nbytes).text);
	/* Of a plan with coded planes nothing knows the outcome. */
	tsr_text_printf(
		&r->text, " to %s%s, %.1f%%\n", tsr_format_bytes((double)sizes.stored_nbytes).text,
		!w->common->dry_run ? ""
		: w->coded	    ? " planned before coding"
				    : " planned",
		sizes.nbytes ? 100.0 * (double)sizes.stored_nbytes / (double)sizes.nbytes : 100.0);
	tsr_summary_put_per_parameter(&w->summary, "", "\n", &r->text);
	tsr_summary_put_worst(&w->summary, "largest error", &r->text);
	tsr_losses_put_text(&w->summary.losses, &r->text);
	tsr_choices_put_text(&w->summary.choices, &r->text);
	if (w->done != TSR_OK || sizes.npacked)
		report_deltas(w, r);
	else
		r->differs = cli_nothing_packed(w->common, w->strict, &w->kept, w->d) != CLI_OK;
}

int cli_pack_directory(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_pack_options *o, cli_warn_packing *warn)
{
	struct work w = { .cmd = cmd,
			  .common = common,
			  .watch = { .packed = on_packed },
			  .warn = warn,
			  .coded = o->coded != TSR_CODED_NONE,
			  .strict = o->strict,
			  .delta = o->delta };

	if (common->max_shard)
		return cli_usage(cmd, "--max-shard-size splits one packed file, not a directory");
	if (cli_write_options(common, NULL).container != TSR_CONTAINER_COUNT)
		return cli_usage(cmd,
				 "a directory is packed into a directory, and %s has the name of a "
				 "file; one packed file needs a name that ends in .safetensors",
				 common->output);
	CLI_TRY(begin(&w, "packing"));
	return end(&w,
		   tsr_pack_directory(input_of(&w), common->output, o, &w.watch, &w.bar.run, &w.d,
				      &w.bar.err),
		   report_packing);
}

static void report_inspection(struct work *w, struct tsr_report *r)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(w->d);

	tsr_text_printf(&r->text, "%s: packed directory, %zu packed, %zu copied\n\n",
			tsr_format_name(tsr_directory_path(w->d), 30).text, sizes.npacked,
			sizes.ncopied);
	put_tables(w, r);
	tsr_text_printf(&r->text, "%s to %s", tsr_format_bytes((double)sizes.nbytes).text,
			tsr_format_bytes((double)sizes.stored_nbytes).text);
	tsr_summary_put_per_parameter(&w->summary, ", ", "", &r->text);
	tsr_text_puts(&r->text, "\n");
}

int cli_inspect_directory(const struct cli_cmd *cmd, const struct cli_common *common)
{
	struct work w = { .cmd = cmd, .common = common };
	const struct tsr_directory_entry *e;
	int status = CLI_OK;

	if (tsr_directory_open(input_of(&w), &w.d, &w.bar.err) != TSR_OK)
		return cli_error(&w.bar.err);
	for (size_t i = 0; status == CLI_OK && (e = tsr_directory_entry(w.d, i)); i++) {
		if (e->as == TSR_STORED_PACKED || e->reason)
			status = add_file(&w, e);
	}
	if (status == CLI_OK)
		status = report(&w, report_inspection);
	tsr_directory_close(w.d);
	return status;
}

/* --- Unpack and recode ------------------------------------------------------------------------ */

static void on_unpacked(void *ctx, const struct tsr_directory_entry *e,
			const struct tsr_unpacking *u)
{
	struct work *w = ctx;

	cli_warn_notes(w->common, u->source);
	w->ndeltas += tsr_written_delta_differs(&u->delta, u->source->ntensors);
	w->summary.file = e->path;
	tsr_summary_add_all(&w->summary, u->source);
}

/* "OUT: 3 files unpacked, 2 copied" */
static void put_count(const struct work *w, const char *what, struct tsr_report *r)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(w->d);

	tsr_text_printf(&r->text, "%s: %s %s, %zu copied", tsr_report_output(r, 40).text,
			tsr_format_number(sizes.npacked, "file").text, what, sizes.ncopied);
}

static void report_unpacking(struct work *w, struct tsr_report *r)
{
	warn_remark(w);
	tsr_report_put_output(r);
	cli_report_files(r, w->d, NULL, r->verbose ? "path,stored,nbytes" : NULL);
	put_count(w, "unpacked", r);
	tsr_text_printf(&r->text, ", %s%s\n",
			tsr_format_bytes((double)cli_directory_sizes(w->d).nbytes).text,
			w->common->dry_run ? " planned" : "");
	tsr_summary_put_worst(&w->summary, "  largest error when it was packed", &r->text);
}

int cli_unpack_directory(const struct cli_cmd *cmd, const struct cli_common *common,
			 const struct tsr_write_options *o)
{
	struct work w = { .cmd = cmd, .common = common, .watch = { .unpacked = on_unpacked } };

	CLI_TRY(begin(&w, "unpacking"));
	return end(&w,
		   tsr_unpack_directory(input_of(&w), common->output, o, &w.watch, &w.bar.run, &w.d,
					&w.bar.err),
		   report_unpacking);
}

/* A step of a recording. */
static void on_coded(void *ctx, const struct tsr_directory_entry *e, const struct tsr_packing *p)
{
	struct work *w = ctx;

	for (size_t i = 0; i < p->source->ntensors; i++)
		w->elements += p->source->tensors[i].numel;
	w->before += e->nbytes;
	w->after += e->stored_nbytes;
}

/* Files of gradients that stay as they were, when others do not. */
static void warn_copied(const struct work *w)
{
	const struct tsr_directory_entry *e, *first = NULL;
	size_t n = 0;

	for (size_t i = 0; (e = tsr_directory_entry(w->d, i)); i++) {
		if (e->as == TSR_STORED_COPY && e->reason && !n++)
			first = e;
	}
	if (n)
		cli_warn(w->common, "%s: %s of gradients copied as %s, %s: %s",
			 tsr_directory_path(w->d), tsr_format_number(n, "file").text,
			 n == 1 ? "it is" : "they are", first->path, first->reason);
}

static void report_recoding(struct work *w, struct tsr_report *r)
{
	if (!tsr_directory_is_packed(input_of(w)))
		warn_copied(w);
	warn_remark(w);
	tsr_report_put_output(r);
	tsr_json_put_u64(&r->json, "gradients", w->elements);
	cli_report_files(r, w->d, NULL, r->verbose ? "path,stored,stored_nbytes,reason" : NULL);
	put_count(w, w->coded ? "coded" : "plain", r);
	tsr_text_printf(&r->text, "; %s%s\n",
			tsr_format_bytes((double)cli_directory_sizes(w->d).stored_nbytes).text,
			w->common->dry_run ? " planned before coding" : "");
	if (w->elements)
		tsr_text_printf(&r->text, "%.3f bytes per element of the gradients, %.3f before\n",
				(double)w->after / (double)w->elements,
				(double)w->before / (double)w->elements);
	report_deltas(w, r);
}

int cli_recode_files(const struct cli_cmd *cmd, const struct cli_common *common,
		     const struct tsr_recode_options *how, bool strict)
{
	const char *in = common->operands.items[0];
	const bool packed = tsr_directory_is_packed(in);
	struct work w = { .cmd = cmd,
			  .common = common,
			  .watch = { .packed = on_coded, .unpacked = on_unpacked },
			  .coded = how->coded != TSR_CODED_NONE,
			  .strict = strict,
			  .delta = how->delta };

	if (common->max_shard)
		return cli_usage(cmd, "--max-shard-size splits one packed file, not a directory");
	if (!packed)
		CLI_TRY(cli_part_refuse(cmd, "a recording"));
	if (how->coded == TSR_CODED_STATES && !packed)
		return cli_usage(cmd, "--entropy=states is for packed files; a recording has none");
	CLI_TRY(begin(&w, "coding"));
	return end(&w,
		   (packed ? tsr_recode_directory : tsr_recode_recording)(
			   in, common->output, how, &w.watch, &w.bar.run, &w.d, &w.bar.err),
		   report_recoding);
}

/* --- Verify and diff -------------------------------------------------------------------------- */

static void on_verified(void *ctx, const struct tsr_directory_entry *e,
			const struct tsr_verification *v)
{
	struct work *w = ctx;
	struct tsr_losses losses;

	cli_warn_notes(w->common, tsr_verification_checked(v));
	if (!w->against)
		return;
	losses = tsr_losses_of_verification(v);
	cli_warn_updates(w->common, e->path, &losses);
	tsr_losses_merge(&w->summary.losses, &losses);
}

static void report_verification(struct work *w, struct tsr_report *r)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(w->d);
	const char *remark = tsr_directory_remark(w->d);
	const size_t nfaults = tsr_directory_nfaults(w->d);

	tsr_json_put_string(&r->json, "remark", tsr_directory_remark(w->d));
	if (w->against)
		tsr_losses_put_json(&w->summary.losses, &r->json);
	if (remark)
		tsr_text_printf(&r->text, "%s\n", remark);
	cli_report_faults(r, w->d, remark && !r->verbose ? NULL : "FAULT");
	tsr_text_printf(&r->text, "%s: %s and %zu cop%s, %s read\n",
			tsr_format_name(tsr_directory_path(w->d), 40).text,
			tsr_format_number(sizes.npacked, "packed file").text, sizes.ncopied,
			sizes.ncopied == 1 ? "y" : "ies",
			tsr_format_bytes((double)sizes.stored_nbytes).text);
	if (nfaults)
		tsr_text_printf(&r->text, "  %zu at fault\n", nfaults);
	else
		tsr_text_puts(&r->text,
			      "  every file is there and has the hashes that were recorded\n");
	if (w->against && !nfaults)
		tsr_text_puts(&r->text, "  copies and raw tensors equal the original's, errors are "
					"as recorded\n");
	if (w->against)
		tsr_losses_put_text(&w->summary.losses, &r->text);
}

int cli_verify_directory(const struct cli_cmd *cmd, const struct cli_common *common,
			 const struct tsr_verify_options *o)
{
	struct work w = { .cmd = cmd,
			  .common = common,
			  .watch = { .verified = on_verified },
			  .against = o->nagainst };

	CLI_TRY(begin(&w, "verifying"));
	return end(&w,
		   tsr_verify_directory(input_of(&w), o, &w.watch, &w.bar.run, &w.d, &w.bar.err),
		   report_verification);
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
	struct work *w = ctx;

	if (w->common->verbose)
		tsr_text_printf(&w->lines, "%s: %zu tensors compared, %" PRIu64 " differ\n",
				tsr_format_name(e->path, 40).text, tsr_comparison_ntensors(c),
				tsr_comparison_ndiffering(c));
}

void cli_report_other_files(struct tsr_report *r, const struct tsr_directory *d)
{
	const size_t n = cli_directory_sizes(d).ncopied, nfaults = tsr_directory_nfaults(d);

	cli_report_faults(r, d, "differs");
	if (n || nfaults)
		tsr_text_printf(&r->text, "%s compared: %zu differ\n",
				tsr_format_number(n, "other file").text, nfaults);
}

static void report_comparison(struct work *w, struct tsr_report *r)
{
	const struct cli_directory_sizes sizes = cli_directory_sizes(w->d);
	const size_t n = sizes.npacked + sizes.ncopied, nfaults = tsr_directory_nfaults(w->d);

	tsr_json_put_string(&r->json, "remark", tsr_directory_remark(w->d));
	tsr_text_puts(&r->text, w->lines.bytes ? w->lines.bytes : "");
	cli_report_faults(r, w->d, "differs");
	tsr_text_printf(&r->text, "%s compared: %zu differ\n", tsr_format_number(n, "file").text,
			nfaults);
	r->differs = nfaults;
}

int cli_diff_directory(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_diff_options *o)
{
	struct work w = { .cmd = cmd, .common = common, .watch = { .compared = on_compared } };

	CLI_TRY(begin(&w, "comparing"));
	return end(&w,
		   tsr_diff_directory(input_of(&w), common->operands.items[1], o, &w.watch,
				      &w.bar.run, &w.d, &w.bar.err),
		   report_comparison);
}
