/* SPDX-License-Identifier: Apache-2.0 */
/* tersor audit: what each codec would do to a checkpoint. */
#include <stdio.h>
#include <string.h>

#include "cli/coding.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/work.h"
#include "report/audit/audit_report.h"
#include "report/audit/audit_table.h"
#include "text/json.h"

struct args {
	struct cli_common common;
	struct cli_list codec, keep, map;
	const char *kind, *scale;
	uint64_t group;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("codec", "LIST", CLI_LIST, codec, NULL,
		"codecs to try, separated by commas; all: every one (default: those of states, and "
		"of weights those without extra bits or with 8)"),
	CLI_OPT("kind", "KIND", CLI_WORD, kind, "weight momentum variance",
		"audit tensors of this kind only"),
	CLI_OPT("scale", "FORMAT", CLI_WORD, scale, "e8m8 f16 f32",
		"how codecs that have it store scales (default: each its own)"),
	CLI_OPT_NUMBER("group", "N", group, 1, TSR_GROUP_MAX,
		       "elements that share a scale (default: each codec's own)"),
	CLI_OPT("keep", "REGEX", CLI_LIST, keep, NULL,
		"leave out tensors with a match in their name"),
	{ "csv", 0, "FILE", CLI_OPTIONAL, AT(common.csv), 0, 0, "@report",
	  "print comma-separated values instead of the report, or write them to FILE" },
	CLI_OPT("map", "REGEX=KIND", CLI_LIST, map, NULL, "tensors with a match are of this kind"),
	{ 0 }
};

/* --- What to try -------------------------------------------------------------------------------- */

struct choice {
	struct tsr_coding codings[TSR_AUDIT_CODINGS_MAX];
	unsigned n;
};

static void add_codec(struct choice *c, const struct tsr_codec *codec)
{
	for (unsigned kind = TSR_KIND_WEIGHT; kind <= TSR_KIND_VARIANCE; kind *= 2) {
		if (!(codec->kinds & kind) || c->n == TSR_AUDIT_CODINGS_MAX)
			continue;
		c->codings[c->n] = tsr_coding_default(codec);
		c->codings[c->n++].kind = (enum tsr_kind)kind;
	}
}

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
	add_codec(c, codec);
	return CLI_OK;
}

static int choose_list(const struct cli_cmd *cmd, const char *list, struct choice *c)
{
	char word[128];

	for (;;) {
		const size_t len = strcspn(list, ",");

		if (len >= sizeof(word))
			return cli_usage(cmd, "option --codec: found '%s', expected names", list);
		snprintf(word, sizeof(word), "%.*s", (int)len, list);
		CLI_TRY(choose_word(cmd, word, c));
		if (!list[len])
			return CLI_OK;
		list += len + 1;
	}
}

static int choose(const struct cli_cmd *cmd, const struct args *a, struct choice *c)
{
	enum tsr_scale scale = TSR_SCALE_COUNT;

	for (unsigned i = 0; i < a->codec.n; i++)
		CLI_TRY(choose_list(cmd, a->codec.items[i], c));
	if (!a->codec.n)
		c->n = tsr_audit_codings(false, c->codings);
	if (a->scale)
		tsr_scale_find(a->scale, &scale);
	for (unsigned i = 0; i < c->n; i++) {
		const enum tsr_kind kind = c->codings[i].kind;

		c->codings[i] = tsr_coding_with(c->codings[i].codec, scale, (uint32_t)a->group);
		c->codings[i].kind = kind;
	}
	return CLI_OK;
}

/* --- Reports ------------------------------------------------------------------------------------ */

/* What is wrong with the checkpoint, a line each; CLI_DIFFERS if there is anything. */
static int report_faults(const struct cli_common *common, const struct tsr_audit *a)
{
	int status = CLI_OK;
	char text[120];

	for (size_t i = 0; i < a->ntensors; i++) {
		const char *fault = tsr_audit_fault_text(&a->tensors[i], text, sizeof(text));

		if (!fault)
			continue;
		cli_warn(common, "%s: tensor %s: %s; --keep leaves it out",
			 tsr_checkpoint_path(a->source), a->tensors[i].tensor->name, fault);
		status = CLI_DIFFERS;
	}
	if (a->nalone && !a->npairs) {
		cli_warn(
			common,
			"%s: no momentum has a variance here: updates are not measured; --map says "
			"which tensors are what, --kind momentum or --codec leaves pairs out",
			tsr_checkpoint_path(a->source));
		status = CLI_DIFFERS;
	}
	return status;
}

static int report_json(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct tsr_audit *audit)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	cli_json_inputs(&json, common);
	tsr_json_open(&json, "checkpoints", '[');
	tsr_audit_put_json(audit, &json);
	tsr_json_close(&json, ']');
	return cli_json_end(&json, common);
}

static int report(const struct cli_cmd *cmd, const struct args *a, const struct tsr_audit *audit)
{
	struct cli_reports reports = { 0 };
	int status;

	cli_warn_notes(&a->common, audit->source);
	tsr_audit_put_table(audit, a->common.verbose, &reports.table);
	if (a->common.csv.given) {
		tsr_audit_put_csv_names(&reports.csv);
		tsr_audit_put_csv(audit, &reports.csv);
	}
	status = cli_write_reports(&reports, &a->common);
	if (status == CLI_OK && a->common.json.given)
		status = report_json(cmd, &a->common, audit);
	return status == CLI_OK ? report_faults(&a->common, audit) : status;
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	struct tsr_name_rule rules[CLI_RULES_MAX];
	struct tsr_audit_options o = tsr_audit_defaults();
	struct choice choice = { .n = 0 };
	struct tsr_audit *audit = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status audited;
	enum tsr_kind kind = TSR_KIND_OTHER;
	struct cli_work work;
	int status;

	CLI_TRY(choose(cmd, a, &choice));
	CLI_TRY(cli_parse_rules(cmd, &a->keep, &a->map, rules, &o.nrules));
	CLI_TRY(cli_check_reports(cmd, &a->common));
	if (a->kind)
		tsr_kind_find(a->kind, &kind);
	o.codings = choice.codings;
	o.ncodings = choice.n;
	o.kinds = kind;
	o.rules = rules;
	o.open = &a->common.open;
	cli_work_start(&work, &a->common, "auditing");
	audited = tsr_audit_run(a->common.operands.items, a->common.operands.n, &o, &work.run,
				&audit, &err);
	cli_work_end(&work);
	status = audited == TSR_OK ? report(cmd, a, audit) : cli_error(&err);
	tsr_audit_free(audit);
	return status;
}

const struct cli_cmd cmd_audit = {
	.name = "audit",
	.summary = "measure what each codec would do to a checkpoint",
	.operands = "IN...",
	.details =
		"Reads a checkpoint once, tries every codec on each of its weights, momenta and "
		"variances, and writes nothing: how large the errors are over the tensors, what "
		"becomes zero, and for each pair of codecs for momenta and variances what becomes "
		"of the optimizer's updates. The first lines say what to use. Exit status 1 if a "
		"tensor has no figures.",
	.examples = "  tersor audit checkpoint.pt\n"
		    "  tersor audit --codec softsign8,ratio8,sqrt8,log8 checkpoint.safetensors\n",
	.opts = opts,
	.takes = CLI_READS | CLI_WORKS | CLI_REPORTS,
	.operands_min = 1,
	.operands_max = 4096,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
