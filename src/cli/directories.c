/* SPDX-License-Identifier: Apache-2.0 */
/* What commands do with a directory that is packed file by file, and with a recording that is coded. */
#include "cli/operations.h"

#include "base/fail.h"
#include "cli/files.h"
#include "cli/parts/parting.h"
#include "io/dir.h"
#include "report/checkpoints/directory_report.h"

/* A command on a directory, and what it found in all files. */
struct work {
	const struct cli_cmd *cmd;
	const struct cli_common *common;
	struct tsr_directory_watch watch;
	cli_warn_packing *warn; /* of pack */
	bool strict;
	struct cli_work bar;
	struct tsr_directory *d;
	struct tsr_kept_raw kept;
	struct tsr_directory_found found;
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

typedef void report_fn(const struct tsr_directory_found *f, struct tsr_report *r);

/* @judge warns of what was found, and may say that it @differs; NULL: there is nothing to say. */
static int report(struct work *w, report_fn *fill,
		  void (*judge)(const struct work *w, struct tsr_report *r))
{
	struct tsr_report r = cli_report(w->cmd, w->common, "directory");

	w->found.d = w->d;
	w->found.summary.files_nbytes = tsr_directory_sizes(w->d).stored_nbytes;
	tsr_copies_add_flat(&w->found.summary.copies);
	fill(&w->found, &r);
	if (judge)
		judge(w, &r);
	return cli_end_report(&r, w->common);
}

/* After it. */
static int end(struct work *w, enum tsr_status done, report_fn *fill,
	       void (*judge)(const struct work *w, struct tsr_report *r))
{
	int status;

	cli_work_end(&w->bar, done);
	w->found.done = done == TSR_OK;
	status = w->d ? report(w, fill, judge) : CLI_OK;
	tsr_text_free(&w->found.lines);
	tsr_directory_close(w->d);
	return done == TSR_OK ? status : cli_error(&w->bar.err);
}

/* What is wrong with the directory as a whole, where the report does not say it. */
static void warn_remark(const struct work *w, struct tsr_report *r)
{
	(void)r;
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
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status status = path ? tsr_checkpoint_open(paths, 1, &w->common->open, &c, &err)
				      : tsr_fail_nomem(&err, e->path);

	/* Why a copy was not packed can be that its tensors cannot be read. */
	if (status != TSR_OK)
		return e->as == TSR_STORED_COPY ? CLI_OK : cli_error(&err);
	(void)tsr_names_assign(c, NULL, 0, NULL);
	w->found.summary.file = e->path;
	tsr_summary_add_all(&w->found.summary, c);
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
	w->found.ndeltas += tsr_written_delta_differs(&p->delta, p->source->ntensors);
	w->warn(w->common, p);
	w->found.summary.file = e->path;
	tsr_summary_add_packing(&w->found.summary, p);
}

/* Deltas that gain nothing, and bases that whoever reads them has to look for. */
static void judge_deltas(const struct work *w, struct tsr_report *r)
{
	const char *delta = w->found.delta;

	if (!delta || r->dry_run || !w->found.done)
		return;
	cli_warn_not_beside(w->common, delta);
	if (w->found.ndeltas || !tsr_directory_sizes(w->d).npacked)
		return;
	cli_warn(w->common,
		 "%s: is no smaller than without --delta: %s has no packed file of the same name "
		 "from which one differs little",
		 w->common->output, delta);
	r->differs = w->strict;
}

static void judge_packing(const struct work *w, struct tsr_report *r)
{
	if (!w->found.done || tsr_directory_sizes(w->d).npacked)
		judge_deltas(w, r);
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
			  .strict = o->strict,
			  .found = { .coded = o->coded != TSR_CODED_NONE, .delta = o->delta } };

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
		   tsr_packed_directory_report, judge_packing);
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
		status = report(&w, tsr_inspected_directory_report, NULL);
	tsr_directory_close(w.d);
	return status;
}

/* --- Unpack and recode ------------------------------------------------------------------------ */

static void on_unpacked(void *ctx, const struct tsr_directory_entry *e,
			const struct tsr_unpacking *u)
{
	struct work *w = ctx;

	cli_warn_notes(w->common, u->source);
	w->found.ndeltas += tsr_written_delta_differs(&u->delta, u->source->ntensors);
	w->found.summary.file = e->path;
	tsr_summary_add_all(&w->found.summary, u->source);
}

int cli_unpack_directory(const struct cli_cmd *cmd, const struct cli_common *common,
			 const struct tsr_write_options *o)
{
	struct work w = { .cmd = cmd, .common = common, .watch = { .unpacked = on_unpacked } };

	CLI_TRY(begin(&w, "unpacking"));
	return end(&w,
		   tsr_unpack_directory(input_of(&w), common->output, o, &w.watch, &w.bar.run, &w.d,
					&w.bar.err),
		   tsr_unpacked_directory_report, warn_remark);
}

/* A step of a recording. */
static void on_coded(void *ctx, const struct tsr_directory_entry *e, const struct tsr_packing *p)
{
	struct work *w = ctx;

	for (size_t i = 0; i < p->source->ntensors; i++)
		w->found.elements += p->source->tensors[i].numel;
	w->found.before += e->nbytes;
	w->found.after += e->stored_nbytes;
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

static void judge_recoding(const struct work *w, struct tsr_report *r)
{
	if (!tsr_directory_is_packed(input_of(w)))
		warn_copied(w);
	warn_remark(w, r);
	judge_deltas(w, r);
}

int cli_recode_files(const struct cli_cmd *cmd, const struct cli_common *common,
		     const struct tsr_recode_options *how, bool strict)
{
	const char *in = common->operands.items[0];
	const bool packed = tsr_directory_is_packed(in);
	struct work w = { .cmd = cmd,
			  .common = common,
			  .watch = { .packed = on_coded, .unpacked = on_unpacked },
			  .strict = strict,
			  .found = { .coded = how->coded != TSR_CODED_NONE, .delta = how->delta } };

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
		   tsr_recoded_directory_report, judge_recoding);
}

/* --- Verify and diff -------------------------------------------------------------------------- */

static void on_verified(void *ctx, const struct tsr_directory_entry *e,
			const struct tsr_verification *v)
{
	struct work *w = ctx;
	struct tsr_lost lost;

	cli_warn_notes(w->common, tsr_verification_checked(v));
	if (!w->found.against)
		return;
	lost = tsr_lost_in_verification(v);
	cli_warn_updates(w->common, e->path, &lost);
	tsr_lost_merge(&w->found.summary.lost, &lost);
}

int cli_verify_directory(const struct cli_cmd *cmd, const struct cli_common *common,
			 const struct tsr_verify_options *o)
{
	struct work w = { .cmd = cmd,
			  .common = common,
			  .watch = { .verified = on_verified },
			  .found = { .against = o->nagainst } };

	CLI_TRY(begin(&w, "verifying"));
	return end(&w,
		   tsr_verify_directory(input_of(&w), o, &w.watch, &w.bar.run, &w.d, &w.bar.err),
		   tsr_verified_directory_report, NULL);
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
		tsr_text_printf(&w->found.lines, "%s: %zu tensors compared, %" PRIu64 " differ\n",
				tsr_format_name(e->path, 40).text, tsr_comparison_ntensors(c),
				tsr_comparison_ndiffering(c));
}

int cli_diff_directory(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_diff_options *o)
{
	struct work w = { .cmd = cmd, .common = common, .watch = { .compared = on_compared } };

	CLI_TRY(begin(&w, "comparing"));
	return end(&w,
		   tsr_diff_directory(input_of(&w), common->operands.items[1], o, &w.watch,
				      &w.bar.run, &w.d, &w.bar.err),
		   tsr_compared_directory_report, NULL);
}
