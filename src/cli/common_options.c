/* SPDX-License-Identifier: Apache-2.0 */
/* The options that commands share, and all options of a command in the order of its help. */
#include "cli/cli.h"
#include "codec/state_forms.h"

#define AT(field) offsetof(struct cli_common, field)

/*
 * In the order of the help; a command has those whose bit it takes, and its own options after the
 * first row.
 */
static const struct {
	unsigned takes; /* enum cli_takes; 0: every command */
	struct cli_opt opt;
} shared[] = {
	{ CLI_WRITES, CLI_OPT_KEY("output", 'o', "OUT", CLI_STRING, output, "@file") },
	{ CLI_DRAWS, CLI_OPT("csv", "FILE", CLI_OPTIONAL, report[CLI_CSV], "@report") },
	{ CLI_DRAWS, CLI_OPT("svg", "FILE", CLI_STRING, report[CLI_SVG].value, "@report") },
	{ CLI_DRAWS, CLI_OPT("html", "FILE", CLI_STRING, report[CLI_HTML].value, "@report") },
	{ CLI_WRITES,
	  CLI_OPT_NUMBER("max-shard-size", "SIZE", max_shard, 1, UINT64_MAX, .needs = "output") },
	{ CLI_WRITES, CLI_OPT_KEY("force", 'f', NULL, CLI_FLAG, force, NULL, .needs = "output") },
	{ CLI_WRITES, CLI_OPT("dry-run", NULL, CLI_FLAG, dry_run, NULL) },
	{ CLI_READS, CLI_OPT("follow-symlinks", NULL, CLI_FLAG, follow, NULL) },
	{ CLI_READS,
	  CLI_OPT("npy-dtype", "DTYPE", CLI_STRING, npy_dtype, "bf16 f16 f8_e4m3 f8_e5m2") },
	{ CLI_READS, CLI_OPT("params", "FILE", CLI_STRING, params, "@file") },
	{ CLI_READS,
	  CLI_OPT("params-from", "MODEL", CLI_STRING, params_from, "@file", .excludes = "params") },
	{ CLI_READS, CLI_OPT("base", "FILE", CLI_STRING, base, "@file") },
	{ CLI_READS, CLI_OPT("opaque", "WHAT", CLI_WORD, opaque, "refuse carry drop") },
	{ CLI_COMPUTES, CLI_OPT("device", "DEVICE", CLI_STRING, device, "auto cpu cuda cuda:all") },
	{ CLI_WORKS,
	  { .name = "threads",
	    .key = 'j',
	    .arg = "N",
	    .type = CLI_NUMBER,
	    .at = AT(threads),
	    .max = 256 } },
	{ CLI_WORKS, CLI_OPT("no-progress", NULL, CLI_FLAG, no_progress, NULL) },
	{ CLI_PARTS, CLI_OPT("part", "I/N", CLI_STRING, part, NULL) },
	{ CLI_PARTS, CLI_OPT("continue", NULL, CLI_FLAG, continues, NULL) },
	{ CLI_REPORTS, CLI_OPT("json", "FILE", CLI_OPTIONAL, report[CLI_JSON], "@report") },
	{ CLI_REPORTS, CLI_OPT("color", "WHEN", CLI_WORD, color, "auto always never") },
	{ CLI_REPORTS, CLI_OPT_KEY("quiet", 'q', NULL, CLI_COUNT, quiet, NULL) },
	{ CLI_REPORTS, CLI_OPT_KEY("verbose", 'v', NULL, CLI_COUNT, verbose, NULL) },
	{ 0, CLI_OPT_KEY("help", 'h', NULL, CLI_FLAG, help, NULL) },
};

bool cli_is_among(const char *word, size_t len, const char *words)
{
	for (; *words; words += strspn(words, " ")) {
		const size_t n = strcspn(words, " ");

		if (n == len && memcmp(words, word, n) == 0)
			return true;
		if (n == strlen(TSR_STATE_PAIR) && memcmp(words, TSR_STATE_PAIR, n) == 0 &&
		    memchr(word, '/', len))
			return true;
		words += n;
	}
	return false;
}

bool cli_is_report(const struct cli_opt *o)
{
	return o->values && strcmp(o->values, "@report") == 0;
}

bool cli_is_path(const struct cli_opt *o)
{
	return cli_is_report(o) || (o->values && strcmp(o->values, "@file") == 0);
}

void cli_collect_opts(const struct cli_cmd *cmd, struct cli_opts *ret)
{
	ret->n = 0;
	for (size_t i = 0; i < sizeof(shared) / sizeof(*shared); i++) {
		bool own = false;

		/* A command's own option of the same name replaces a shared one. */
		for (const struct cli_opt *o = cmd->opts; o && o->name; o++)
			own = own || strcmp(o->name, shared[i].opt.name) == 0;
		if ((!shared[i].takes || cmd->takes & shared[i].takes) && !own)
			ret->opt[ret->n++] = &shared[i].opt;
		for (const struct cli_opt *o = cmd->opts; i == 0 && o && o->name; o++)
			ret->opt[ret->n++] = o;
	}
}
