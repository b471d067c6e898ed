/* SPDX-License-Identifier: Apache-2.0 */
/* tersor store: the checkpoints of a run in one directory. */
#include "cli/files.h"
#include "cli/work.h"
#include "io/atomic_dir.h"
#include "report/checkpoints/store_report.h"
#include "text/bytes.h"

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

/* What is done with an open store, and what is said of it. */
struct storing {
	const struct cli_cmd *cmd;
	const struct args *a;
	struct tsr_store *store;
	const char *name; /* of the store */
	const char *const *operands; /* behind it */
	/* Of the action's plan: */
	uint64_t step[2]; /* that these are, where they are steps */
	struct tsr_store_add_options add;
	struct tsr_store_rule *rules;
	unsigned nrules;
	struct cli_work work;
	struct tsr_table t; /* rows of the report that the library finds one by one */
	struct tsr_report r;
};

/* A word after the store's name: what its command needs. */
struct action {
	const char *name;
	unsigned operands_min, operands_max; /* behind the store */
	const char *takes; /* options of the list above, separated by spaces */
	enum tsr_store_mode mode;
	const char *verb;
	/* Takes what the command line alone says, before a store is opened or made; NULL: nothing. */
	int (*plan)(struct storing *x);
	int (*run)(struct storing *x); /* the exit status, CLI_OK with a report */
};

static int done(const struct storing *x, enum tsr_status status)
{
	return status == TSR_OK ? CLI_OK : cli_error(&x->work.err);
}

static int parse_step(const struct cli_cmd *cmd, const char *text, uint64_t *ret)
{
	if (!tsr_digits(text, strlen(text), STEP_MAX, ret))
		return cli_usage(cmd, "found step '%s', expected a number", text);
	return CLI_OK;
}

/* --- add -------------------------------------------------------------------------------------- */

/* The last number in the last name of a path. */
static bool last_number(const char *path, uint64_t *ret)
{
	size_t end = strlen(path);

	while (end && path[end - 1] == '/')
		end--;
	while (end && path[end - 1] != '/' && !strchr("0123456789", path[end - 1]))
		end--;
	return tsr_digits_at_end(path, end, STEP_MAX, ret);
}

static int plan_add(struct storing *x)
{
	const struct args *a = x->a;
	struct tsr_store_add_options *o = &x->add;

	*o = tsr_store_add_defaults();
	o->step = a->step;
	o->name = a->name;
	o->follow = a->common.follow;
	if (!cli_given(&a->common, "step") && !last_number(x->operands[0], &o->step))
		return cli_usage(x->cmd, "'%s' has no number for the step; give --step N",
				 x->operands[0]);
	if (a->tier)
		(void)tsr_store_tier_find(a->tier, &o->tier);
	if (cli_given(&a->common, "weight-error")) {
		o->tier = a->bounds;
		snprintf(o->tier.name, sizeof(o->tier.name), "bounds");
		o->tier.as = TSR_STORE_BOUNDS;
	}
	return CLI_OK;
}

static int add(struct storing *x)
{
	struct tsr_store_added added;

	CLI_TRY(done(x, tsr_store_add(x->store, x->operands[0], &x->add, &x->work.run, &added,
				      &x->work.err)));
	if (added.has_note)
		cli_warn(&x->a->common, "%s: stored bit by bit, since its tensors were not found",
			 added.note);
	tsr_store_added_report(x->name, &added, &x->r);
	return CLI_OK;
}

/* --- ls, du, get, verify, diff ---------------------------------------------------------------- */

static int list(struct storing *x)
{
	tsr_store_list_report(x->store, &x->r);
	return CLI_OK;
}

static int usage(struct storing *x)
{
	tsr_store_usage_report(x->name, x->store, &x->r);
	return CLI_OK;
}

static const struct tsr_snapshot_info *find(const struct tsr_store *s, uint64_t step)
{
	const struct tsr_snapshot_info *info;

	for (size_t i = 0; (info = tsr_store_snapshot(s, i)); i++)
		if (info->step == step)
			return info;
	return NULL;
}

static int plan_steps(struct storing *x)
{
	for (unsigned i = 0; i < x->a->common.operands.n - 2; i++)
		CLI_TRY(parse_step(x->cmd, x->operands[i], &x->step[i]));
	return CLI_OK;
}

static int plan_get(struct storing *x)
{
	CLI_TRY(plan_steps(x));
	return x->a->common.output ? CLI_OK : cli_usage(x->cmd, "get needs -o OUT");
}

static int get(struct storing *x)
{
	const struct cli_common *common = &x->a->common;

	CLI_TRY(done(x, tsr_store_get(x->store, x->step[0], common->output, common->force,
				      &x->work.run, &x->work.err)));
	tsr_store_written_report(find(x->store, x->step[0]), &x->r);
	return CLI_OK;
}

/* Faults are reported, and then are the error. */
static int verify(struct storing *x)
{
	const enum tsr_status status = tsr_store_verify(x->store, &x->work.run, tsr_store_put_fault,
							&x->t, &x->work.err);

	if (status != TSR_E_FORMAT)
		CLI_TRY(done(x, status));
	tsr_store_verified_report(x->name, x->store, x->t, &x->r);
	return CLI_OK;
}

static int diff(struct storing *x)
{
	struct tsr_store_compared c;

	x->t.most_text = 20;
	CLI_TRY(done(x, tsr_store_diff(x->store, x->step[0], x->step[1], &x->work.run,
				       tsr_store_put_difference, &x->t, &c, &x->work.err)));
	tsr_store_compared_report(&c, x->t, &x->r);
	return CLI_OK;
}

/* --- thin, drop ------------------------------------------------------------------------------- */

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

/* By the rules of --keep, or by the steps to drop behind the store. */
static int plan_thin(struct storing *x)
{
	const unsigned nsteps = x->a->common.operands.n - 2;

	x->nrules = nsteps ? nsteps : x->a->keep.n;
	x->rules = calloc(x->nrules + 1, sizeof(*x->rules));
	if (!x->rules)
		return cli_fail(CLI_IO, "out of memory");
	for (unsigned i = 0; i < x->nrules; i++) {
		x->rules[i] = (struct tsr_store_rule){ .which = TSR_STORE_STEP, .drop = true };
		CLI_TRY(nsteps ? parse_step(x->cmd, x->operands[i], &x->rules[i].n)
			       : parse_rule(x->cmd, x->a->keep.items[i], &x->rules[i]));
	}
	return CLI_OK;
}

static int thin(struct storing *x)
{
	uint64_t freed;

	for (unsigned i = 0; i < x->nrules; i++)
		if (x->rules[i].which == TSR_STORE_STEP && !find(x->store, x->rules[i].n))
			return cli_usage(x->cmd, "'%s' has no step %" PRIu64, x->name,
					 x->rules[i].n);
	CLI_TRY(done(x, tsr_store_thin(x->store, x->rules, x->nrules, x->a->common.dry_run,
				       &x->work.run, tsr_store_put_change, &x->t, &freed,
				       &x->work.err)));
	tsr_store_thinned_report(x->name, x->store, x->t, freed, &x->r);
	return CLI_OK;
}

/* --- The command ------------------------------------------------------------------------------ */

static const struct action actions[] = {
	{ "add", 1, 1, "step name tier weight-error update-error variance-error follow-symlinks",
	  TSR_STORE_ADD, "adding", plan_add, add },
	{ "ls", 0, 0, "", TSR_STORE_READ, NULL, NULL, list },
	{ "get", 1, 1, "output force", TSR_STORE_READ, "writing", plan_get, get },
	{ "diff", 2, 2, "", TSR_STORE_READ, "comparing", plan_steps, diff },
	{ "verify", 0, 0, "", TSR_STORE_READ, "verifying", NULL, verify },
	{ "thin", 0, 0, "keep dry-run", TSR_STORE_CHANGE, "thinning", plan_thin, thin },
	{ "drop", 1, 4094, "dry-run", TSR_STORE_CHANGE, "dropping", plan_thin, thin },
	{ "du", 0, 0, "", TSR_STORE_READ, NULL, NULL, usage },
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

static void end_storing(struct storing *x)
{
	tsr_store_close(x->store);
	free(x->rules);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	const char *const *words = a->common.operands.items;
	TSR_SCOPED(end_storing)
	struct storing x = { .cmd = cmd, .a = a, .name = words[1], .operands = words + 2 };
	const struct action *action = NULL;
	struct tsr_err err = { 0 };
	const char *note;
	int status;

	CLI_TRY(find_action(cmd, a, &action));
	if (action->plan)
		CLI_TRY(action->plan(&x));
	/* Before a store is made there. */
	if ((action->run == add &&
	     tsr_outdir_check_not_below(x.name, x.operands[0], &err) != TSR_OK) ||
	    tsr_store_open(x.name, action->mode, &x.store, &err) != TSR_OK)
		return cli_error(&err);
	for (size_t i = 0; action->run != verify && (note = tsr_store_note(x.store, i)); i++)
		cli_warn(&a->common, "%s", note);
	cli_work_start(&x.work, &a->common, action->verb);
	x.r = cli_report(cmd, &a->common, action->run == thin ? "thin" : action->name);
	status = action->run(&x);
	cli_work_end(&x.work, TSR_OK);
	if (status == CLI_OK) {
		status = cli_end_report(&x.r, &a->common);
		status = status == CLI_OK ? done(&x, x.work.err.code) : status;
	} else {
		tsr_text_free(&x.r.json);
		tsr_table_free(&x.t);
	}
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
