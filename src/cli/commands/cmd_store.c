/* SPDX-License-Identifier: Apache-2.0 */
/* tersor store: the checkpoints of a run in one directory. */
#include "cli/files.h"
#include "cli/work.h"
#include "io/dir_output.h"
#include "cli/words.h"
#include "tersor/store.h"
#include "text/bytes.h"
#include "text/json.h"

#define STEP_MAX TSR_JSON_INT_MAX

struct args {
	struct cli_common common;
	uint64_t step;
	const char *name, *tier;
	struct tsr_store_tier bounds;
	struct cli_list keep;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT_KEY("output", 'o', "OUT", CLI_STRING, common.output, "@file"),
	CLI_OPT_NUMBER("step", "N", step, 0, STEP_MAX),
	CLI_OPT("name", "TEXT", CLI_STRING, name, NULL),
	CLI_OPT("tier", "TIER", CLI_WORD, tier, "lossless exact 1e-3 1e-2 trace"),
	CLI_OPT_REAL("weight-error", "E", bounds.weight, 1e-12, 1, .needs = "update-error",
		     .excludes = "tier"),
	CLI_OPT_REAL("update-error", "E", bounds.update, 1e-12, 1, .needs = "variance-error",
		     .excludes = "tier"),
	CLI_OPT_REAL("variance-error", "E", bounds.variance, 1e-12, 1, .needs = "weight-error",
		     .excludes = "tier"),
	CLI_OPT("keep", "TIER:WHICH", CLI_LIST, keep, NULL),
	CLI_OPT_KEY("force", 'f', NULL, CLI_FLAG, common.force, NULL),
	CLI_OPT("dry-run", NULL, CLI_FLAG, common.dry_run, NULL),
	CLI_OPT("follow-symlinks", NULL, CLI_FLAG, common.follow, NULL),
	{ 0 }
};

/* A word after the store's name: what its command needs. */
struct action {
	const char *name;
	unsigned operands_min, operands_max; /* behind the store */
	const char *takes; /* options of the list above, separated by spaces */
	enum tsr_store_mode mode;
	const char *verb;
	int (*run)(const struct cli_cmd *cmd, const struct args *a, struct tsr_store *s,
		   const struct tsr_run *run);
};

/* The operand number @i behind the store. */
static const char *operand(const struct args *a, unsigned i)
{
	return a->common.operands.items[2 + i];
}

static const char *store_name(const struct args *a)
{
	return a->common.operands.items[1];
}

static int parse_step(const struct cli_cmd *cmd, const char *text, uint64_t *ret)
{
	if (!tsr_digits(text, strlen(text), STEP_MAX, ret))
		return cli_usage(cmd, "found step '%s', expected a number", text);
	return CLI_OK;
}

/* --- Tables ----------------------------------------------------------------------------------- */

/* An error of a snapshot, "-" if it has none. */
static double error_of(double e)
{
	return e < 0 ? NAN : e;
}

static const char *files(const struct tsr_snapshot_info *i)
{
	return i->nfiles == 1 ? "file" : "files";
}

static void put_snapshot(struct tsr_table *t, const struct tsr_snapshot_info *i)
{
	tsr_row(t);
	TSR_CELL(t, "step", "step", i->step);
	TSR_CELL(t, "name", "name:n", i->name);
	TSR_CELL(t, "tier", "tier", tsr_keep(t, i->tier.name));
	TSR_CELL(t, "alone_nbytes", "alone:B", (double)i->alone_nbytes);
	TSR_CELL(t, "shared_nbytes", "shared:B", (double)i->shared_nbytes);
	TSR_CELL(t, "nbytes", "of:B", (double)i->nbytes);
	TSR_CELL(t, "errors.weight", "weights\n/ moved:.1e", error_of(i->errors.weight));
	TSR_CELL(t, "errors.weight_ulps", "BF16\nULPs:.2g", error_of(i->errors.weight_ulps));
	TSR_CELL(t, "errors.update", "update\nNMSE:.1e", error_of(i->errors.update));
	TSR_CELL(t, "errors.variance", "root v\nNMSE:.1e", error_of(i->errors.variance));
	TSR_CELL(t, "depth", NULL, (uint64_t)i->depth);
	TSR_CELL(t, "nfiles", NULL, i->nfiles);
	TSR_CELL(t, "nparameters", NULL, i->nparameters);
}

#define ERROR_COLUMNS "errors.weight,errors.weight_ulps,errors.update,errors.variance"
#define SNAPSHOT_COLUMNS "step,name,tier,alone_nbytes,shared_nbytes," ERROR_COLUMNS

/* A snapshot by itself: the errors of its training state, if it lost anything of one. */
static void report_snapshot(struct tsr_report *r, const struct tsr_snapshot_info *i)
{
	struct tsr_table t = { 0 };

	put_snapshot(&t, i);
	if (i->tier.as != TSR_STORE_LOSSLESS && i->errors.weight_ulps >= 0)
		tsr_report_lines(r, &t, ERROR_COLUMNS);
	tsr_table_end_members(t, &r->json);
}

/* --- add -------------------------------------------------------------------------------------- */

/* The last number in the last name of a path. */
static bool last_number(const char *path, uint64_t *ret)
{
	size_t end = strlen(path), first;

	while (end && path[end - 1] == '/')
		end--;
	while (end && path[end - 1] != '/' && !strchr("0123456789", path[end - 1]))
		end--;
	for (first = end; first && strchr("0123456789", path[first - 1]);)
		first--;
	return tsr_digits(path + first, end - first, STEP_MAX, ret);
}

static int report_added(const struct cli_cmd *cmd, const struct args *a,
			const struct tsr_store_added *added)
{
	struct tsr_report r = cli_report(cmd, &a->common, "add");
	const struct tsr_snapshot_info *i = &added->info;

	if (added->has_note)
		cli_warn(&a->common, "%s: stored bit by bit, since its tensors were not found",
			 added->note);
	tsr_report_say(&r, TSR_TO_TEXT, "%s: step %" PRIu64 ", tier %s: %" PRIu64 " %s, %s in %s",
		       store_name(a), i->step, i->tier.name, i->nfiles, files(i),
		       tsr_format_bytes((double)i->nbytes).text,
		       tsr_format_bytes((double)added->new_nbytes).text);
	if (i->nparameters)
		tsr_report_say(&r, TSR_TO_TEXT,
			       "%.2f bytes per parameter; %s of %s are weights, momenta and "
			       "variances in FP32",
			       (double)added->new_nbytes / (double)i->nparameters,
			       tsr_format_bytes((double)added->nlossy).text,
			       tsr_format_bytes((double)(added->nlossy + added->nother)).text);
	report_snapshot(&r, i);
	tsr_json_put_u64(&r.json, "new_nbytes", added->new_nbytes);
	tsr_json_put_u64(&r.json, "state_nbytes", added->nlossy);
	tsr_json_put_u64(&r.json, "other_nbytes", added->nother);
	tsr_json_put_u64(&r.json, "objects", added->nobjects);
	tsr_json_put_string(&r.json, "note", added->has_note ? added->note : NULL);
	return cli_end_report(&r, &a->common);
}

static int add(const struct cli_cmd *cmd, const struct args *a, struct tsr_store *s,
	       const struct tsr_run *run)
{
	struct tsr_store_add_options o = tsr_store_add_defaults();
	struct tsr_store_added added;
	struct tsr_err err = { 0 };

	o.step = a->step;
	o.name = a->name;
	o.follow = a->common.follow;
	if (!cli_given(&a->common, "step") && !last_number(operand(a, 0), &o.step))
		return cli_usage(cmd, "'%s' has no number for the step; give --step N",
				 operand(a, 0));
	if (a->tier)
		(void)tsr_store_tier_find(a->tier, &o.tier);
	if (cli_given(&a->common, "weight-error")) {
		o.tier = a->bounds;
		snprintf(o.tier.name, sizeof(o.tier.name), "bounds");
		o.tier.as = TSR_STORE_BOUNDS;
	}
	if (tsr_store_add(s, operand(a, 0), &o, run, &added, &err) != TSR_OK)
		return cli_error(&err);
	return report_added(cmd, a, &added);
}

/* --- ls, du, get, verify ---------------------------------------------------------------------- */

static int list(const struct cli_cmd *cmd, const struct args *a, struct tsr_store *s,
		const struct tsr_run *run)
{
	struct tsr_report r = cli_report(cmd, &a->common, "ls");
	const struct tsr_snapshot_info *info;
	struct tsr_table t = { 0 };
	uint64_t unused;

	(void)run;
	for (size_t i = 0; (info = tsr_store_snapshot(s, i)); i++)
		put_snapshot(&t, info);
	tsr_json_put_u64(&r.json, "nbytes", tsr_store_nbytes(s, &unused));
	tsr_json_put_u64(&r.json, "unused_nbytes", unused);
	tsr_report_rows(&r, t, "snapshots", SNAPSHOT_COLUMNS);
	return cli_end_report(&r, &a->common);
}

static int usage(const struct cli_cmd *cmd, const struct args *a, struct tsr_store *s,
		 const struct tsr_run *run)
{
	struct tsr_report r = cli_report(cmd, &a->common, "du");
	const struct tsr_snapshot_info *info;
	uint64_t unused, held = 0, parameters = 0;
	const uint64_t nbytes = tsr_store_nbytes(s, &unused);
	size_t n = 0;

	(void)run;
	for (; (info = tsr_store_snapshot(s, n)); n++) {
		held += info->nbytes;
		parameters += info->nparameters;
	}
	tsr_report_say(&r, TSR_TO_TEXT, "%s: %s for %zu snapshots of %s", store_name(a),
		       tsr_format_bytes((double)nbytes).text, n,
		       tsr_format_bytes((double)held).text);
	if (parameters)
		tsr_report_say(&r, TSR_TO_TEXT, "%.2f bytes per parameter and snapshot",
			       (double)nbytes / (double)parameters);
	if (unused)
		tsr_report_say(&r, TSR_TO_TEXT,
			       "%s are needed by no snapshot; store thin removes them",
			       tsr_format_bytes((double)unused).text);
	tsr_json_put_u64(&r.json, "snapshots", n);
	tsr_json_put_u64(&r.json, "nbytes", nbytes);
	tsr_json_put_u64(&r.json, "unused_nbytes", unused);
	tsr_json_put_u64(&r.json, "checkpoint_nbytes", held);
	return cli_end_report(&r, &a->common);
}

static const struct tsr_snapshot_info *find(const struct tsr_store *s, uint64_t step)
{
	const struct tsr_snapshot_info *info;

	for (size_t i = 0; (info = tsr_store_snapshot(s, i)); i++)
		if (info->step == step)
			return info;
	return NULL;
}

static int get(const struct cli_cmd *cmd, const struct args *a, struct tsr_store *s,
	       const struct tsr_run *run)
{
	const struct tsr_snapshot_info *info;
	struct tsr_err err = { 0 };
	struct tsr_report r;
	uint64_t step;

	CLI_TRY(parse_step(cmd, operand(a, 0), &step));
	if (!a->common.output)
		return cli_usage(cmd, "get needs -o OUT");
	if (tsr_store_get(s, step, a->common.output, a->common.force, run, &err) != TSR_OK)
		return cli_error(&err);
	info = find(s, step);
	r = cli_report(cmd, &a->common, "get");
	tsr_report_say(&r, TSR_TO_TEXT, "%s: step %" PRIu64 ", tier %s, %" PRIu64 " %s, %s",
		       tsr_report_output(&r, 40).text, step, info->tier.name, info->nfiles,
		       files(info), tsr_format_bytes((double)info->nbytes).text);
	tsr_json_put_string(&r.json, "output", a->common.output);
	report_snapshot(&r, info);
	return cli_end_report(&r, &a->common);
}

/* What verify finds, as a line for people and a row for programs. */
struct faults {
	struct tsr_report report;
	struct tsr_table table;
};

static void put_fault(void *ctx, const char *what)
{
	struct faults *f = ctx;

	tsr_report_say(&f->report, TSR_TO_TEXT, "FAULT %s", what);
	tsr_row(&f->table);
	TSR_CELL(&f->table, "fault", NULL, tsr_keep(&f->table, what));
}

static int verify(const struct cli_cmd *cmd, const struct args *a, struct tsr_store *s,
		  const struct tsr_run *run)
{
	struct faults f = { cli_report(cmd, &a->common, "verify"), { 0 } };
	struct tsr_err err = { 0 };
	const enum tsr_status status = tsr_store_verify(s, run, put_fault, &f, &err);
	uint64_t unused;
	size_t n = 0;

	if (status != TSR_OK && status != TSR_E_FORMAT) {
		tsr_table_free(&f.table);
		tsr_text_free(&f.report.json);
		tsr_text_free(&f.report.text);
		return cli_error(&err);
	}
	while (tsr_store_snapshot(s, n))
		n++;
	tsr_json_put_u64(&f.report.json, "snapshots", n);
	tsr_json_put_u64(&f.report.json, "nbytes", tsr_store_nbytes(s, &unused));
	tsr_json_put_bool(&f.report.json, "intact", status == TSR_OK);
	tsr_table_end_json(f.table, "faults", &f.report.json);
	if (status == TSR_OK)
		tsr_report_say(&f.report, TSR_TO_TEXT, "%s: %zu snapshots, %s: intact",
			       store_name(a), n,
			       tsr_format_bytes((double)tsr_store_nbytes(s, NULL)).text);
	CLI_TRY(cli_end_report(&f.report, &a->common));
	return status == TSR_OK ? CLI_OK : cli_error(&err);
}

/* --- diff ------------------------------------------------------------------------------------- */

static void put_difference(void *ctx, const struct tsr_store_difference *d)
{
	struct tsr_table *t = ctx;

	tsr_row(t);
	TSR_CELL(t, "name", "tensor:n", tsr_keep(t, d->name));
	TSR_CELL(t, "elements", "elements:,", d->nelements);
	TSR_CELL(t, "different", "different:,", d->nother);
	TSR_CELL(t, "moved", "moved\nrms:.2e", d->moved);
	TSR_CELL(t, "relative", "of its\nrms:.2e", d->rms > 0 ? d->moved / d->rms : NAN);
}

static int diff(const struct cli_cmd *cmd, const struct args *a, struct tsr_store *s,
		const struct tsr_run *run)
{
	struct tsr_store_compared c;
	struct tsr_err err = { 0 };
	struct tsr_table t = { .most_text = 20 };
	struct tsr_report r;
	uint64_t x, y;

	CLI_TRY(parse_step(cmd, operand(a, 0), &x));
	CLI_TRY(parse_step(cmd, operand(a, 1), &y));
	if (tsr_store_diff(s, x, y, run, put_difference, &t, &c, &err) != TSR_OK) {
		tsr_table_free(&t);
		return cli_error(&err);
	}
	r = cli_report(cmd, &a->common, "diff");
	tsr_report_rows(&r, t, "tensors", "name,elements,different,moved,relative");
	tsr_report_say(&r, TSR_TO_TEXT,
		       "%" PRIu64 " of %" PRIu64 " tensors of training state differ; %" PRIu64
		       " of %" PRIu64 " files differ beside them; %" PRIu64 " are in one only",
		       c.nother, c.ntensors, c.nother_files, c.nfiles, c.nonly);
	tsr_json_put_u64(&r.json, "compared", c.ntensors);
	tsr_json_put_u64(&r.json, "different", c.nother);
	tsr_json_put_u64(&r.json, "files", c.nfiles);
	tsr_json_put_u64(&r.json, "different_files", c.nother_files);
	tsr_json_put_u64(&r.json, "in_one_only", c.nonly);
	r.differs = c.nother || c.nother_files || c.nonly;
	return cli_end_report(&r, &a->common);
}

/* --- thin, drop ------------------------------------------------------------------------------- */

static void put_change(void *ctx, const struct tsr_snapshot_info *before,
		       enum tsr_store_change change, const struct tsr_store_tier *tier)
{
	static const char *const words[] = { "keep", "store coarser", "drop" };
	struct tsr_table *t = ctx;

	tsr_row(t);
	TSR_CELL(t, "step", "step", before->step);
	TSR_CELL(t, "name", "name:n", tsr_keep(t, before->name));
	TSR_CELL(t, "from", "tier", tsr_keep(t, before->tier.name));
	TSR_CELL(t, "change", "change", words[change]);
	TSR_CELL(t, "to", "to", change == TSR_STORE_DROPPED ? "-" : tsr_keep(t, tier->name));
	TSR_CELL(t, "alone_nbytes", "alone:B", (double)before->alone_nbytes);
}

static int thin_by(const struct cli_cmd *cmd, const struct args *a, struct tsr_store *s,
		   const struct tsr_run *run, const struct tsr_store_rule *rules, unsigned n)
{
	struct tsr_err err = { 0 };
	struct tsr_table t = { 0 };
	struct tsr_report r;
	uint64_t freed;

	if (tsr_store_thin(s, rules, n, a->common.dry_run, run, put_change, &t, &freed, &err) !=
	    TSR_OK) {
		tsr_table_free(&t);
		return cli_error(&err);
	}
	r = cli_report(cmd, &a->common, "thin");
	tsr_report_rows(&r, t, "snapshots", "step,name,from,change,to,alone_nbytes");
	if (a->common.dry_run)
		tsr_report_say(&r, TSR_TO_TEXT,
			       "planned: would free at most %s, less what coarser versions take",
			       tsr_format_bytes((double)freed).text);
	else
		tsr_report_say(&r, TSR_TO_TEXT, "%s: freed %s, %s are left", store_name(a),
			       tsr_format_bytes((double)freed).text,
			       tsr_format_bytes((double)tsr_store_nbytes(s, NULL)).text);
	tsr_json_put_bool(&r.json, "dry_run", a->common.dry_run);
	tsr_json_put_u64(&r.json, "freed_nbytes", freed);
	return cli_end_report(&r, &a->common);
}

static int parse_which(const struct cli_cmd *cmd, const char *rule, const char *which,
		       struct tsr_store_rule *ret)
{
	static const struct {
		const char *word;
		enum tsr_store_which which;
	} words[] = { { "last=", TSR_STORE_LAST },
		      { "every=", TSR_STORE_EVERY },
		      { "older=", TSR_STORE_OLDER } };

	ret->which = TSR_STORE_REST;
	if (strcmp(which, "rest") == 0)
		return CLI_OK;
	for (unsigned i = 0; i < 3; i++) {
		const size_t n = strlen(words[i].word);

		if (strncmp(which, words[i].word, n) != 0)
			continue;
		ret->which = words[i].which;
		CLI_TRY(parse_step(cmd, which + n, &ret->n));
		if (ret->n || ret->which == TSR_STORE_OLDER)
			return CLI_OK;
	}
	return cli_usage(cmd,
			 "--keep %s: found '%s' behind the colon, expected last=N, every=N, "
			 "older=N or rest",
			 rule, which);
}

static int parse_rule(const struct cli_cmd *cmd, const char *text, struct tsr_store_rule *ret)
{
	const char *colon = strchr(text, ':');
	const size_t n = colon ? (size_t)(colon - text) : 0;
	char tier[16] = "";

	if (n && n < sizeof(tier))
		memcpy(tier, text, n);
	ret->drop = strcmp(tier, "drop") == 0;
	if (!ret->drop && !tsr_store_tier_find(tier, &ret->tier))
		return cli_usage(cmd,
				 "--keep %s: expected TIER:WHICH, such as exact:last=2, 1e-2:rest "
				 "or drop:older=5000",
				 text);
	return parse_which(cmd, text, colon + 1, ret);
}

static int parse_dropped(const struct cli_cmd *cmd, const struct args *a, const struct tsr_store *s,
			 const char *text, struct tsr_store_rule *ret)
{
	*ret = (struct tsr_store_rule){ .which = TSR_STORE_STEP, .drop = true };
	CLI_TRY(parse_step(cmd, text, &ret->n));
	if (!find(s, ret->n))
		return cli_usage(cmd, "'%s' has no step %" PRIu64, store_name(a), ret->n);
	return CLI_OK;
}

/* By the rules of --keep, or by the steps to drop behind the store. */
static int thin(const struct cli_cmd *cmd, const struct args *a, struct tsr_store *s,
		const struct tsr_run *run)
{
	const unsigned nsteps = a->common.operands.n - 2, n = nsteps ? nsteps : a->keep.n;
	struct tsr_store_rule *rules = calloc(n + 1, sizeof(*rules));
	int status = rules ? CLI_OK : cli_fail(CLI_IO, "out of memory");

	for (unsigned i = 0; status == CLI_OK && i < n; i++)
		status = nsteps ? parse_dropped(cmd, a, s, operand(a, i), &rules[i])
				: parse_rule(cmd, a->keep.items[i], &rules[i]);
	if (status == CLI_OK)
		status = thin_by(cmd, a, s, run, rules, n);
	free(rules);
	return status;
}

/* --- The command ------------------------------------------------------------------------------ */

static const struct action actions[] = {
	{ "add", 1, 1, "step name tier weight-error update-error variance-error follow-symlinks",
	  TSR_STORE_ADD, "adding", add },
	{ "ls", 0, 0, "", TSR_STORE_READ, NULL, list },
	{ "get", 1, 1, "output force", TSR_STORE_READ, "writing", get },
	{ "diff", 2, 2, "", TSR_STORE_READ, "comparing", diff },
	{ "verify", 0, 0, "", TSR_STORE_READ, "verifying", verify },
	{ "thin", 0, 0, "keep dry-run", TSR_STORE_CHANGE, "thinning", thin },
	{ "drop", 1, 4094, "dry-run", TSR_STORE_CHANGE, "dropping", thin },
	{ "du", 0, 0, "", TSR_STORE_READ, NULL, usage },
};

#define NACTIONS (sizeof(actions) / sizeof(*actions))

/* Options of another action are refused, not ignored. */
static int check_options(const struct cli_cmd *cmd, const struct args *a,
			 const struct action *action)
{
	for (unsigned i = 0; i < a->common.ngiven; i++) {
		const struct cli_opt *o = a->common.given[i].opt;

		for (const struct cli_opt *own = opts; own->name; own++)
			if (own == o && !cli_is_among(o->name, strlen(o->name), action->takes))
				return cli_usage(cmd, "--%s does not go with store %s", o->name,
						 action->name);
	}
	return CLI_OK;
}

static int find_action(const struct cli_cmd *cmd, const struct args *a, const struct action **ret)
{
	const char *word = a->common.operands.items[0];
	struct tsr_nearest nearest = { .wrong = word };
	const unsigned n = a->common.operands.n - 2;

	for (size_t i = 0; i < NACTIONS; i++) {
		*ret = &actions[i];
		if (strcmp(word, actions[i].name) == 0) {
			if (n >= actions[i].operands_min && n <= actions[i].operands_max)
				return check_options(cmd, a, *ret);
			return cli_usage(cmd, "store %s: see the examples of --help", word);
		}
		tsr_nearest_offer(&nearest, actions[i].name);
	}
	return cli_unknown(cmd, "action", &nearest, "add, ls, get, diff, verify, thin, drop or du");
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct args *a = args;
	const struct action *action = NULL;
	struct tsr_store *s = NULL;
	struct tsr_err err = { 0 };
	struct cli_work work;
	const char *note;
	int status;

	CLI_TRY(find_action(cmd, a, &action));
	/* Before a store is made there. */
	if (action->run == add &&
	    tsr_outdir_check_not_below(store_name(a), operand(a, 0), &err) != TSR_OK)
		return cli_error(&err);
	if (tsr_store_open(store_name(a), action->mode, &s, &err) != TSR_OK)
		return cli_error(&err);
	for (size_t i = 0; action->run != verify && (note = tsr_store_note(s, i)); i++)
		cli_warn(&a->common, "%s", note);
	cli_work_start(&work, &a->common, action->verb);
	status = action->run(cmd, a, s, &work.run);
	cli_work_end(&work, TSR_OK);
	tsr_store_close(s);
	return status;
}

TSR_EMBED(help_store, "man/help/store.txt");

const struct cli_cmd cmd_store = {
	.name = "store",
	.summary = "keep a run's checkpoints in one directory, exact or coarse",
	.operands = "ACTION STORE [...]",
	.help = help_store,
	.opts = opts,
	.takes = CLI_WORKS | CLI_REPORTS,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
