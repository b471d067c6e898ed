/* SPDX-License-Identifier: Apache-2.0 */
/* tersor diff: compare two checkpoints. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/coding.h"
#include "cli/directories.h"
#include "cli/directory_report.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/work.h"
#include "compare/comparison.h"
#include "directory/diff_directory.h"
#include "io/dir.h"
#include "report/format.h"
#include "report/value_differences.h"
#include "text/json.h"

struct args {
	struct cli_common common;
	struct cli_list tol;
	bool strict;
	const char *base, *base_b;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("tol", "METRIC=VALUE", CLI_LIST, tol, "abs= ulp= rel= nmse= cosine=",
		"the largest difference of a tensor that counts as equal: abs, ulp, rel, nmse, or "
		"cosine (1 - cosine similarity); all that are given must hold"),
	CLI_OPT_FLAG("strict", strict, "count every tensor that only one side has"),
	CLI_OPT("base", "FILE", CLI_STRING, base, "@file",
		"the base of A and B, as far as they are packed deltas, if it is not beside them"),
	CLI_OPT("base-b", "FILE", CLI_STRING, base_b, "@file", "the base of B, if it is another"),
	{ 0 }
};

static const char *const kind_names[] = {
	[TSR_DIFF_COMPARED] = "compared",   [TSR_DIFF_ONLY_A] = "only in A",
	[TSR_DIFF_ONLY_B] = "only in B",    [TSR_DIFF_SHAPE] = "shapes differ",
	[TSR_DIFF_DTYPE] = "dtypes differ",
};

/* With tolerances only what is beyond them is worth a line. */
static bool is_shown(const struct args *a, const struct tsr_diff_tensor *d)
{
	if (a->common.verbose)
		return true;
	if (a->tol.n)
		return d->exceeds;
	return !d->noted && (d->kind != TSR_DIFF_COMPARED || d->different);
}

static void print_tensor(const struct tsr_diff_tensor *d)
{
	const struct tsr_cell name = tsr_format_name(d->name, 30);

	if (d->kind != TSR_DIFF_COMPARED) {
		printf("%-30s %s\n", name.text, kind_names[d->kind]);
		return;
	}
	printf("%-30s %10" PRIu64, name.text, d->different);
	if (d->measure.n && d->nonfinite_different < d->different)
		printf(" %10s %9.2e %9.2e %7.1e", tsr_format_ulp((double)d->measure.max_ulp).text,
		       (double)d->measure.max_abs, d->measure.mean_rel, d->measure.nmse);
	else if (d->different)
		printf("   at element %" PRIu64, d->worst);
	if (d->nonfinite_different)
		printf(" (%" PRIu64 " non-finite)", d->nonfinite_different);
	printf("\n");
}

static const struct tsr_diff_tensor *worst_of(const struct tsr_comparison *r)
{
	const struct tsr_diff_tensor *worst = NULL;

	for (size_t i = 0; i < r->ntensors; i++) {
		const struct tsr_diff_tensor *d = &r->tensors[i];

		if (d->kind != TSR_DIFF_COMPARED || !d->different)
			continue;
		if (!worst || d->nonfinite_different > worst->nonfinite_different ||
		    (d->nonfinite_different == worst->nonfinite_different &&
		     d->measure.nmse > worst->measure.nmse))
			worst = d;
	}
	return worst;
}

static void print_besides(const struct args *a, const struct tsr_comparison *r)
{
	struct tsr_text lines = { 0 };

	tsr_besides_put_text(&r->besides, a->common.verbose, &lines);
	(void)cli_write_report(&lines, NULL);
}

static void print_report(const struct args *a, const struct tsr_comparison *r)
{
	const struct tsr_diff_tensor *worst = worst_of(r);
	const bool table = a->common.verbose || (a->tol.n ? r->nexceeding : r->ndiffering);

	if (table)
		printf("%-30s %10s %10s %9s %9s %7s\n", "tensor", "different", "max ULP", "max abs",
		       "mean rel", "NMSE");
	for (size_t i = 0; i < r->ntensors; i++) {
		if (is_shown(a, &r->tensors[i]))
			print_tensor(&r->tensors[i]);
	}
	if (worst) {
		printf("%sworst: %s, element %" PRIu64, table ? "\n" : "",
		       tsr_format_name(worst->name, 40).text, worst->worst);
		if (worst->measure.n)
			printf(": %.9g against %.9g", worst->worst_a, worst->worst_b);
		printf("\n");
	}
	if (r->nnoted)
		printf("%" PRIu64
		       " tensors that the other kind of file has no place for, or has none of: "
		       "not counted\n",
		       r->nnoted);
	print_besides(a, r);
	printf("%zu tensors compared: %" PRIu64 " differ", r->ntensors - (size_t)r->nnoted,
	       r->ndiffering);
	if (a->tol.n)
		printf(", %" PRIu64 " beyond the tolerances", r->nexceeding);
	printf("\n");
}

static void tensor_json(struct tsr_text *json, const struct tsr_diff_tensor *d)
{
	tsr_json_open(json, NULL, '{');
	tsr_json_put_string(json, "name", d->name);
	tsr_json_put_string(json, "result",
			    d->kind != TSR_DIFF_COMPARED ? kind_names[d->kind]
			    : d->different		 ? "different"
							 : "equal");
	tsr_json_put_bool(json, "exceeds", d->exceeds);
	tsr_json_put_bool(json, "noted", d->noted);
	if (d->kind == TSR_DIFF_COMPARED) {
		tsr_json_put_u64(json, "different", d->different);
		tsr_json_put_u64(json, "nonfinite_different", d->nonfinite_different);
	}
	if (d->different) {
		tsr_json_put_u64(json, "worst_index", d->worst);
		tsr_json_put_double(json, "worst_a", d->worst_a);
		tsr_json_put_double(json, "worst_b", d->worst_b);
	}
	if (d->measure.n)
		cli_json_measure(json, &d->measure);
	tsr_json_close(json, '}');
}

static int report_json(const struct cli_cmd *cmd, const struct args *a,
		       const struct tsr_comparison *r, const struct tsr_directory *others)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	tsr_json_put_string(&json, "a", r->a->path);
	tsr_json_put_string(&json, "b", r->b->path);
	tsr_json_put_u64(&json, "differing", r->ndiffering);
	tsr_json_put_u64(&json, "exceeding", r->nexceeding);
	tsr_json_put_u64(&json, "noted", r->nnoted);
	tsr_besides_put_json(&r->besides, &json);
	tsr_json_open(&json, "tensors", '[');
	for (size_t i = 0; i < r->ntensors; i++)
		tensor_json(&json, &r->tensors[i]);
	tsr_json_close(&json, ']');
	if (others)
		cli_directory_put_json(&json, others, NULL);
	return cli_json_end(&json, &a->common);
}

/* Files that were not read are compared all the same. */
static void warn_notes(const struct cli_common *common, const struct tsr_checkpoint *c)
{
	for (size_t i = 0; i < c->nnotes; i++) {
		if (i >= 64 || !(c->not_read_notes >> i & 1))
			cli_warn(common, "%s", c->notes[i]);
	}
}

static int diff(const struct cli_cmd *cmd, const struct args *a, const struct tsr_diff_options *o)
{
	const char *const *operands = a->common.operands.items;
	const bool folders = tsr_dir_is(operands[0]) && tsr_dir_is(operands[1]);
	struct tsr_directory *others = NULL;
	struct tsr_comparison *r = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status compared;
	struct cli_work work;
	bool differ;
	int status = CLI_OK;

	CLI_TRY(cli_work_open(&work, cmd, &a->common, "comparing"));
	compared = tsr_diff(&operands[0], 1, &operands[1], 1, o, &work.run, &r, &err);
	cli_work_end(&work);
	/* Directories that are no checkpoints are compared file by file. */
	if (folders && compared == TSR_E_UNSUPPORTED)
		return cli_diff_directory(cmd, &a->common, o);
	if (compared == TSR_OK && folders)
		compared = tsr_diff_not_read(r, operands[0], operands[1], o, &others, &err);
	if (compared != TSR_OK) {
		tsr_comparison_free(r);
		return cli_error(&err);
	}
	warn_notes(&a->common, r->a);
	warn_notes(&a->common, r->b);
	if (cli_wants_text(&a->common))
		print_report(a, r);
	if (others && cli_wants_text(&a->common))
		cli_print_other_files(&a->common, others);
	if (a->common.json.given)
		status = report_json(cmd, a, r, others);
	differ = r->nexceeding || r->besides.ndiffering ||
		 (others && tsr_directory_nfaults(others));
	tsr_comparison_free(r);
	tsr_directory_close(others);
	return status == CLI_OK && differ ? CLI_DIFFERS : status;
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	struct tsr_bound tolerances[CLI_BOUNDS_MAX];
	struct tsr_open_options open_a = a->common.open, open_b = a->common.open;
	const struct tsr_diff_options o = { .size = sizeof(o),
					    .tolerances = tolerances,
					    .ntolerances = a->tol.n,
					    .strict = a->strict,
					    .open = &open_a,
					    .open_b = &open_b };

	open_a.base = a->base;
	open_b.base = a->base_b ? a->base_b : a->base;
	CLI_TRY(cli_parse_bounds(cmd, "tol", &a->tol, tolerances));
	return cli_diffs_directories(&a->common) ? cli_diff_directory(cmd, &a->common, &o)
						 : diff(cmd, a, &o);
}

const struct cli_cmd cmd_diff = {
	.name = "diff",
	.summary = "compare two checkpoints, packed or not",
	.operands = "A B",
	.details =
		"Compares tensors of the same name: F32, F16, BF16 and packed ones by value, "
		"others by their bytes. Exits 1 if anything differs, or with --tol if a tensor "
		"differs by more. Values around the tensors and metadata are compared if both have "
		"them, by their bits and without tolerance. Between different kinds of files a "
		"tensor that one side lacks is noted but not counted if it is neither a weight nor "
		"a state, or if that side has weights only; --strict counts it. Of two directories "
		"every file is compared: as one checkpoint each, and what is in none by its bytes, "
		"or file by file if one is packed or is no checkpoint.",
	.examples = "  tersor diff before.safetensors after.safetensors\n"
		    "  tersor diff checkpoint.safetensors packed.safetensors --tol nmse=1e-4\n",
	.opts = opts,
	.takes = CLI_PARTS | CLI_READS | CLI_COMPUTES | CLI_WORKS | CLI_REPORTS | CLI_NUMBERS,
	.operands_min = 2,
	.operands_max = 2,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
