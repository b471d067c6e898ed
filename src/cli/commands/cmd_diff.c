/* SPDX-License-Identifier: Apache-2.0 */
/* tersor diff: compare two checkpoints. */

#include "cli/operations.h"
#include "cli/files.h"
#include "directory/diff_directory.h"
#include "io/dir.h"
#include "report/checkpoints/checkpoint_reports.h"
#include "report/checkpoints/directory_report.h"

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

static int diff(const struct cli_cmd *cmd, const struct args *a)
{
	const struct tsr_diff_options *o = &a->o;
	const char *const *operands = a->common.operands.items;
	const bool folders = tsr_dir_is(operands[0]) && tsr_dir_is(operands[1]);
	TSR_OWNED(tsr_directory_close) struct tsr_directory *others = NULL;
	TSR_OWNED(tsr_comparison_free) struct tsr_comparison *r = NULL;
	enum tsr_status compared;
	struct cli_work work;
	struct tsr_report report;

	CLI_TRY(cli_work_open(&work, cmd, &a->common, "comparing"));
	compared = cli_work_end(
		&work, tsr_diff(&operands[0], 1, &operands[1], 1, o, &work.run, &r, &work.err));
	/* Directories that are no checkpoints are compared file by file. */
	if (folders && compared == TSR_E_UNSUPPORTED && !a->o.steps)
		return cli_diff_directory(cmd, &a->common, o);
	if (compared == TSR_OK && folders)
		compared = tsr_diff_not_read(r, operands[0], operands[1], o, &others, &work.err);
	if (compared != TSR_OK)
		return cli_error(&work.err);
	cli_warn_notes(&a->common, r->a);
	cli_warn_notes(&a->common, r->b);
	report = cli_report(cmd, &a->common, NULL);
	tsr_comparison_report(r, o, &report);
	if (others)
		tsr_other_files_report(others, &report);
	report.differs = r->nexceeding || r->besides.ndiffering ||
			 (others && tsr_directory_nfaults(others));
	return cli_end_report(&report, &a->common);
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
