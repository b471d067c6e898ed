/* SPDX-License-Identifier: Apache-2.0 */
/* tersor audit: what each codec would do to a checkpoint. */

#include "cli/operations.h"
#include "cli/files.h"
#include "cli/parts/parting.h"
#include "audit/audit_gates.h"
#include "audit/audit_presets.h"
#include "report/reports.h"

struct args {
	struct cli_common common;
	struct cli_list codec, keep, map, max_error;
	const char *kind, *scale, *baseline, *table, *state;
	uint64_t group;
	bool steps, granularity;
	struct tsr_audit **audits; /* that were made: one, or with --steps one of each input */
	unsigned naudits;
};

/* The bounds of --max-error. */
struct gates {
	struct tsr_audit_gate gate[CLI_BOUNDS_MAX];
	char text[CLI_BOUNDS_MAX][CLI_WORD_NBYTES];
	unsigned n;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("codec", "LIST", CLI_LIST, codec, "@other"),
	CLI_OPT("state", "FORM", CLI_WORD, state, TSR_STATE_FORMS),
	CLI_OPT("kind", "KIND", CLI_WORD, kind, "weight momentum variance"),
	CLI_OPT("scale", "FORMAT", CLI_WORD, scale, "e8m8 f16 f32 bf16 coat"),
	CLI_OPT_NUMBER("group", "N", group, 1, TSR_GROUP_MAX),
	CLI_OPT("keep", "REGEX", CLI_LIST, keep, NULL),
	CLI_OPT("table", "NAME", CLI_WORD, table, TSR_AUDIT_TABLES,
		.excludes = "codec scale group"),
	CLI_OPT("steps", NULL, CLI_FLAG, steps, NULL),
	CLI_OPT("max-error", "FIGURE=VALUE", CLI_LIST, max_error, NULL),
	CLI_OPT("baseline", "FILE", CLI_STRING, baseline, "@file"),
	CLI_OPT("map", "REGEX=KIND", CLI_LIST, map, NULL),
	CLI_OPT("granularity", NULL, CLI_FLAG, granularity, NULL,
		.excludes = "codec group keep map max-error baseline steps"),
	{ 0 }
};

/* --- What to try -------------------------------------------------------------------------------- */

struct choice {
	struct tsr_coding codings[TSR_AUDIT_CODINGS_MAX];
	unsigned n;
};

static int choose_word(const struct cli_cmd *cmd, const char *word, struct choice *c)
{
	const struct tsr_codec *codec = tsr_codec_find(word);

	if (strcmp(word, "all") == 0) {
		c->n = tsr_audit_codings(true, c->codings);
		return CLI_OK;
	}
	if (!codec || !codec->learned)
		CLI_TRY(cli_parse_codec(cmd, word,
					TSR_KIND_WEIGHT | TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE,
					&codec));
	for (unsigned kind = TSR_KIND_WEIGHT; kind <= TSR_KIND_VARIANCE; kind *= 2) {
		if (!(codec->kinds & kind) || c->n == TSR_AUDIT_CODINGS_MAX)
			continue;
		c->codings[c->n] = tsr_coding_default(codec);
		c->codings[c->n++].kind = (enum tsr_kind)kind;
	}
	return CLI_OK;
}

static int choose(const struct cli_cmd *cmd, const struct args *a, struct choice *c)
{
	enum tsr_scale scale = TSR_SCALE_COUNT;
	char word[CLI_WORD_NBYTES];

	if (a->table) {
		c->n = tsr_audit_table_codings(a->table, c->codings);
		return CLI_OK;
	}
	for (unsigned i = 0; i < a->codec.n; i++) {
		for (const char *list = a->codec.items[i]; cli_next_word(&list, word);)
			CLI_TRY(choose_word(cmd, word, c));
	}
	if (!a->codec.n)
		c->n = tsr_audit_codings(false, c->codings);
	if (a->scale && !tsr_scale_find(a->scale, &scale))
		return cli_usage(cmd, "option --scale: %s is for --granularity", a->scale);
	for (unsigned i = 0; i < c->n; i++) {
		const enum tsr_kind kind = c->codings[i].kind;

		c->codings[i] = tsr_coding_with(c->codings[i].codec, scale, (uint32_t)a->group);
		c->codings[i].kind = kind;
	}
	return CLI_OK;
}

/* --- Faults and gates --------------------------------------------------------------------------- */

static int check_gates(const struct tsr_audit *a, const struct gates *gates)
{
	struct tsr_text missed = { 0 };
	const bool passed = tsr_audit_gates_pass(a, gates->gate, gates->n, &missed);
	int status = passed ? CLI_OK : CLI_DIFFERS;

	if (missed.failed)
		status = cli_fail(CLI_IO, "out of memory");
	for (char *line = missed.bytes, *end; !missed.failed && line && *line; line = end + 1) {
		end = strchr(line, '\n');
		*end = '\0';
		cli_fail(CLI_DIFFERS, "%s: %s", tsr_checkpoint_path(a->source), line);
	}
	tsr_text_free(&missed);
	return status;
}

static int worse(int a, int b)
{
	return a > b ? a : b;
}

/* What is wrong with the checkpoints, a line each, and gates that are missed. */
static int judge(const struct args *a, const struct gates *gates)
{
	int status = CLI_OK;
	char text[120];

	for (unsigned i = 0; i < a->naudits; i++) {
		const struct tsr_audit *x = a->audits[i];
		const char *path = tsr_checkpoint_path(x->source), *fault;
		/* The default list has learned codecs where they can be. */
		bool differs = x->unlearned && (a->codec.n || a->table);

		for (size_t k = 0; k < x->ntensors; k++) {
			fault = tsr_audit_fault_text(&x->tensors[k], text, sizeof(text));
			if (fault)
				cli_warn(&a->common, "%s: tensor %s: %s; --keep leaves it out",
					 path, x->tensors[k].tensor->name, fault);
			differs = differs || fault;
		}
		if (x->nalone && !x->npairs && x->momenta.n && x->variances.n) {
			cli_warn(&a->common,
				 "%s: no momentum has a variance here, so updates are not "
				 "measured; --map says which tensors are what, --kind leaves a "
				 "kind out",
				 path);
			differs = true;
		}
		status = worse(worse(status, differs ? CLI_DIFFERS : CLI_OK),
			       check_gates(x, gates));
	}
	return status;
}

/* --- Reports ------------------------------------------------------------------------------------ */

static int report(const struct cli_cmd *cmd, const struct args *a, const struct tsr_json *baseline)
{
	struct tsr_report r = cli_report(cmd, &a->common, NULL);

	for (unsigned i = 0; i < a->naudits; i++)
		cli_warn_notes(&a->common, a->audits[i]->source);
	tsr_audit_report(a->audits, a->naudits, a->table ? TSR_AUDIT_PAPER : TSR_AUDIT_EACH, &r);
	if (r.wants_json || baseline) {
		if (a->table)
			tsr_json_put_string(&r.json, "table", a->table);
		tsr_audit_put_json(a->audits, a->naudits, &r.json);
	}
	if (baseline)
		tsr_baseline_report(&tsr_audit_baseline, baseline, &r);
	return cli_end_report(&r, &a->common);
}

/* --- All of it ---------------------------------------------------------------------------------- */

static int audit(const struct cli_cmd *cmd, struct args *a, const struct tsr_audit_options *o,
		 const struct gates *gates)
{
	const struct cli_list *in = &a->common.operands;
	const unsigned each = a->steps ? 1 : in->n;
	struct tsr_json *baseline = NULL;
	struct cli_work work;
	struct tsr_err err;
	int status = CLI_OK;

	if (a->baseline &&
	    tsr_baseline_load(&tsr_audit_baseline, a->baseline, &baseline, &err) != TSR_OK)
		return cli_error(&err);
	a->audits = calloc(in->n, sizeof(struct tsr_audit *));
	if (!a->audits)
		status = cli_fail(CLI_IO, "out of memory");
	for (unsigned i = 0; i < in->n && status == CLI_OK; i += each) {
		cli_work_start(&work, &a->common, "auditing");
		if (cli_work_end(&work, tsr_audit_run(&in->items[i], each, o, &work.run,
						      &a->audits[a->naudits], &work.err)) == TSR_OK)
			a->naudits++;
		else
			status = cli_error(&work.err);
	}
	if (status == CLI_OK && tsr_part_is_one(cli_parts())) {
		status = cli_part_write();
	} else if (status == CLI_OK) {
		status = report(cmd, a, baseline);
		if (status <= CLI_DIFFERS)
			status = worse(status, judge(a, gates));
	}
	for (unsigned i = 0; i < a->naudits; i++)
		tsr_audit_free(a->audits[i]);
	free(a->audits);
	tsr_json_free(baseline);
	return status;
}

static int run(const struct cli_cmd *cmd, void *args)
{
	struct args *a = args;
	struct gates gates;
	struct tsr_name_rule rules[CLI_RULES_MAX];
	struct tsr_audit_options o = tsr_audit_defaults();
	struct choice choice = { .n = 0 };
	struct tsr_coding state[2];
	enum tsr_kind kind = TSR_KIND_OTHER;

	if (a->kind)
		tsr_kind_find(a->kind, &kind);
	if (a->granularity)
		return cli_audit_granularity(cmd, &a->common, a->scale, kind);
	CLI_TRY(choose(cmd, a, &choice));
	CLI_TRY(cli_split_bounds(cmd, &a->max_error, gates.text, &gates.n));
	for (unsigned i = 0; i < gates.n; i++) {
		if (!tsr_audit_gate_parse(gates.text[i], &gates.gate[i]))
			return cli_usage(cmd,
					 "option --max-error: found '%s', expected FIGURE=VALUE or "
					 "FIGURE=VALUE,p95 with " TSR_AUDIT_GATES_TEXT,
					 gates.text[i]);
	}
	CLI_TRY(cli_parse_rules(cmd, &a->keep, &a->map, rules, &o.nrules));
	CLI_TRY(cli_check_reports(&a->common));
	for (unsigned i = 0; i < a->common.operands.n; i++)
		CLI_TRY(cli_check_no_recording(a->common.operands.items[i]));
	if (a->state)
		CLI_TRY(cli_parse_state(cmd, a->state, &state[0], &state[1]));
	o.state = a->state ? state : NULL;
	o.codings = choice.codings;
	o.ncodings = choice.n;
	o.kinds = kind;
	o.rules = rules;
	o.open = &a->common.open;
	return audit(cmd, a, &o, &gates);
}

TSR_EMBED(help_audit, "man/help/audit.txt");

const struct cli_cmd cmd_audit = {
	.name = "audit",
	.summary = "measure what each codec would do to a checkpoint",
	.operands = "IN...",
	.help = help_audit,
	.opts = opts,
	.takes = CLI_PARTS | CLI_READS | CLI_DRAWS | CLI_WORKS | CLI_REPORTS | CLI_NUMBERS,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
