/* SPDX-License-Identifier: Apache-2.0 */
/* tersor diff: compare two checkpoints. */

#include "cli/operations.h"
#include "cli/files.h"
#include "directory/diff_directory.h"
#include "io/dir.h"

struct args {
	struct cli_common common;
	struct cli_list max_error;
	struct tsr_diff_options o;
	const char *base, *base_b;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = { CLI_OPT("max-error", "METRIC=VALUE", CLI_LIST, max_error,
					       "abs= ulp= rel= nmse= cosine="),
				       CLI_OPT("strict", NULL, CLI_FLAG, o.strict, NULL),
				       CLI_OPT_NUMBER("steps", "N", o.steps, 1, UINT64_C(1) << 40),
				       CLI_OPT("base", "FILE", CLI_STRING, base, "@file"),
				       CLI_OPT("base-b", "FILE", CLI_STRING, base_b, "@file"),
				       { 0 } };

static const char *const kind_names[] = {
	[TSR_DIFF_COMPARED] = "compared",   [TSR_DIFF_ONLY_A] = "only in A",
	[TSR_DIFF_ONLY_B] = "only in B",    [TSR_DIFF_SHAPE] = "shapes differ",
	[TSR_DIFF_DTYPE] = "dtypes differ",
};

/* What the figures do not say. */
static const char *note_of(struct tsr_table *t, const struct tsr_diff_tensor *d)
{
	if (d->kind != TSR_DIFF_COMPARED)
		return kind_names[d->kind];
	if (d->nonfinite_different)
		return tsr_keepf(t, "%" PRIu64 " non-finite", d->nonfinite_different);
	return d->different && !d->measure.n ? tsr_keepf(t, "at element %" PRIu64, d->worst) : "";
}

static struct tsr_table list_tensors(const struct tsr_report *r, const struct args *a,
				     const struct tsr_comparison *c, bool *any_ret)
{
	struct tsr_table t = { 0 };

	*any_ret = false;
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_diff_tensor *d = &c->tensors[i];
		const bool compared = d->kind == TSR_DIFF_COMPARED;
		/* With tolerances only what is beyond them is worth a line. */
		const bool shown = a->common.verbose ||
				   (a->max_error.n ? d->exceeds
						   : !d->noted && (!compared || d->different));

		*any_ret = *any_ret || shown;
		if (!shown && !r->wants_json)
			continue;
		tsr_row(&t);
		TSR_CELL(&t, "name", "tensor:n", d->name);
		TSR_CELL(&t, "result", NULL,
			 !compared	? kind_names[d->kind]
			 : d->different ? "different"
					: "equal");
		TSR_CELL(&t, "-note", "", note_of(&t, d));
		TSR_CELL(&t, "exceeds", NULL, d->exceeds);
		TSR_CELL(&t, "noted", NULL, d->noted);
		if (compared) {
			TSR_CELL(&t, "different", "different:10", d->different);
			TSR_CELL(&t, "nonfinite_different", NULL, d->nonfinite_different);
		}
		if (d->different) {
			TSR_CELL(&t, "worst_index", NULL, d->worst);
			TSR_CELL(&t, "worst_a", NULL, d->worst_a);
			TSR_CELL(&t, "worst_b", NULL, d->worst_b);
		}
		if (d->measure.n)
			cli_put_measured(&t, &d->measure);
		tsr_put_aside(&t, shown ? 0 : TSR_TO_TEXT);
	}
	return t;
}

static void put_comparison(struct tsr_report *r, const struct args *a,
			   const struct tsr_comparison *c)
{
	const struct tsr_diff_tensor *worst = tsr_comparison_worst(c);
	bool any;
	struct tsr_table t = list_tensors(r, a, c, &any);

	tsr_json_put_u64(&r->json, "differing", c->ndiffering);
	tsr_json_put_u64(&r->json, "exceeding", c->nexceeding);
	tsr_json_put_u64(&r->json, "noted", c->nnoted);
	if (a->o.steps)
		tsr_moments_put_json(&c->moments, &r->json);
	tsr_besides_put_json(&c->besides, &r->json);
	tsr_report_rows(r, t, "tensors",
			"name,different,error.ulp,error.abs,error.rel,error.nmse,-note");
	if (worst) {
		tsr_text_printf(&r->text, "%sworst: %s, element %" PRIu64, any ? "\n" : "",
				tsr_format_name(worst->name, 40).text, worst->worst);
		if (worst->measure.n)
			tsr_text_printf(&r->text, ": %.9g against %.9g", worst->worst_a,
					worst->worst_b);
		tsr_text_puts(&r->text, "\n");
	}
	if (c->nnoted)
		tsr_text_printf(&r->text,
				"%" PRIu64
				" tensors that the other kind of file lacks: not counted\n",
				c->nnoted);
	tsr_besides_put_text(&c->besides, r->verbose, &r->text);
	tsr_text_printf(&r->text, "%zu tensors compared: %" PRIu64 " differ",
			c->ntensors - (size_t)c->nnoted, c->ndiffering);
	if (a->max_error.n)
		tsr_text_printf(&r->text, ", %" PRIu64 " beyond the tolerances", c->nexceeding);
	tsr_text_puts(&r->text, "\n");
}

static int diff(const struct cli_cmd *cmd, const struct args *a)
{
	const struct tsr_diff_options *o = &a->o;
	const char *const *operands = a->common.operands.items;
	const bool folders = tsr_dir_is(operands[0]) && tsr_dir_is(operands[1]);
	struct tsr_directory *others = NULL;
	struct tsr_comparison *r = NULL;
	enum tsr_status compared;
	struct cli_work work;
	struct tsr_report report;
	int status;

	CLI_TRY(cli_work_open(&work, cmd, &a->common, "comparing"));
	compared = cli_work_end(
		&work, tsr_diff(&operands[0], 1, &operands[1], 1, o, &work.run, &r, &work.err));
	if (folders && a->o.steps && compared == TSR_E_UNSUPPORTED)
		return cli_error(&work.err);
	/* Directories that are no checkpoints are compared file by file. */
	if (folders && compared == TSR_E_UNSUPPORTED)
		return cli_diff_directory(cmd, &a->common, o);
	if (compared == TSR_OK && folders)
		compared = tsr_diff_not_read(r, operands[0], operands[1], o, &others, &work.err);
	if (compared != TSR_OK) {
		tsr_comparison_free(r);
		return cli_error(&work.err);
	}
	cli_warn_notes(&a->common, r->a);
	cli_warn_notes(&a->common, r->b);
	report = cli_report(cmd, &a->common, NULL);
	put_comparison(&report, a, r);
	if (others)
		cli_report_other_files(&report, others);
	report.differs = r->nexceeding || r->besides.ndiffering ||
			 (others && tsr_directory_nfaults(others));
	status = cli_end_report(&report, &a->common);
	tsr_comparison_free(r);
	tsr_directory_close(others);
	return status;
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct args *a = args;
	struct tsr_bound tolerances[CLI_BOUNDS_MAX];
	struct tsr_open_options open_a = a->common.open, open_b = a->common.open;
	struct tsr_diff_options *o = &a->o;

	o->size = sizeof(*o);
	o->tolerances = tolerances;
	o->open = &open_a;
	o->open_b = &open_b;
	open_a.base = a->base;
	open_b.base = a->base_b ? a->base_b : a->base;
	CLI_TRY(cli_parse_bounds(cmd, &a->max_error, false, tolerances, &o->ntolerances));
	if (a->o.steps && cli_diffs_directories(&a->common))
		return cli_usage(cmd, "--steps compares two checkpoints, not files of directories");
	return cli_diffs_directories(&a->common) ? cli_diff_directory(cmd, &a->common, o)
						 : diff(cmd, a);
}

TSR_EMBED(help_diff, "man/help/diff.txt");

const struct cli_cmd cmd_diff = {
	.name = "diff",
	.summary = "compare two checkpoints, packed or not",
	.operands = "A B",
	.help = help_diff,
	.opts = opts,
	.takes = CLI_PARTS | CLI_READS | CLI_COMPUTES | CLI_WORKS | CLI_REPORTS | CLI_NUMBERS,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
