/* SPDX-License-Identifier: Apache-2.0 */
/* The help texts, made from the tables of commands and options. */
#include <limits.h>

#include "cli/files.h"

#define HELP_COLUMN 26

TSR_EMBED(help_options, "man/help/options.txt");

/* The paragraph below "--NAME" in the text of the command, or else of all commands. */
char *cli_option_words(const struct cli_cmd *cmd, const struct cli_opt *o)
{
	char head[48], *words;
	const char *at, *end;

	snprintf(head, sizeof(head), "\n--%s\n", o->name);
	at = strstr(cmd->help, head);
	at = at ? at : strstr(help_options, head);
	if (!at)
		return strdup("");
	at += strlen(head);
	end = strstr(at, "\n\n");
	words = end ? strndup(at, (size_t)(end - at)) : strdup(at);
	for (char *c = words; c && *c; c++) {
		if (*c == '\n')
			*c = c[1] ? ' ' : '\0';
	}
	return words;
}

/* Options by what they are for, of all commands; the first are those of every day. */
static const struct {
	const char *title, *names;
} groups[] = {
	{ "Everyday",
	  "output to optimizer state auto max-error codec compare against entropy delta "
	  "steps strict step tier force dry-run" },
	{ "Options", NULL }, /* those that are in no other group */
	{ "Codecs", "weights momentum variance other scale group seed min-elements keep map" },
	{ "Choosing", "max-bytes auto-codecs table kind baseline granularity" },
	{ "Hyperparameters",
	  "lr schedule betas eps weight-decay nesterov decouple-lr hyper order count" },
	{ "Deltas and models", "only as model max-chain base" },
	{ "Gefen", "codebook-from partition few-bins compat" },
	{ "Reading", "follow-symlinks npy-dtype params params-from opaque" },
	{ "Running", "device threads no-progress part continue" },
	{ "Reports", "csv svg html json color quiet verbose help" },
};

#define NGROUPS (sizeof(groups) / sizeof(*groups))

/* "  -o, --output OUT", followed by what @brief cuts to the rest of a line. */
static void put_option(struct tsr_text *help, const struct cli_opt *o, const char *words,
		       bool brief)
{
	const bool optional = o->type == CLI_OPTIONAL;
	char head[80], key[8] = "   ";
	int width, len;

	if (o->key)
		snprintf(key, sizeof(key), "-%c,", o->key);
	width = snprintf(head, sizeof(head), "  %s --%s%s%s%s", key, o->name,
			 !o->arg    ? ""
			 : optional ? " ["
				    : " ",
			 o->arg ? o->arg : "", optional ? "]" : "");
	if (brief) {
		len = (int)strcspn(words, ";(");
		for (len = len < 47 ? len : 47; words[len] && !strchr(" ;(", words[len]);)
			len--;
		tsr_text_printf(help, "%-30s %.*s%s\n", head, len, words,
				words[len] == ' ' ? ".." : "");
		return;
	}
	if (width > HELP_COLUMN - 2)
		tsr_text_printf(help, "%s\n%*s", head, HELP_COLUMN, "");
	else
		tsr_text_printf(help, "%-*s", HELP_COLUMN, head);
	tsr_put_wrapped(help, words, HELP_COLUMN, HELP_COLUMN);
}

/* The options of a group, if there are any. */
static void put_group(struct tsr_text *help, const struct cli_cmd *cmd, const struct cli_opts *all,
		      size_t group, bool brief)
{
	bool any = false;
	char *words;

	for (unsigned i = 0; i < all->n; i++) {
		const char *name = all->opt[i]->name;
		size_t g = 0;

		/* The group that names it, or that of all others. */
		while (g < NGROUPS &&
		       !(groups[g].names && cli_is_among(name, strlen(name), groups[g].names)))
			g++;
		if (g < NGROUPS ? g != group : groups[group].names != NULL)
			continue;
		if (!any)
			tsr_text_printf(help, "\n%s:\n", groups[group].title);
		words = cli_option_words(cmd, all->opt[i]);
		put_option(help, all->opt[i], words ? words : "", brief);
		free(words);
		any = true;
	}
}

void cli_print_help(const struct cli_cmd *cmd, bool brief)
{
	const char *examples = strstr(cmd->help, "\n\n") + 2,
		   *end = examples; /* of so many lines */
	unsigned most = brief ? 3 : UINT_MAX;
	struct tsr_text help = { 0 };
	struct cli_opts all;

	tsr_text_printf(&help, "Usage: tersor %s [options]%s%s\n", cmd->name,
			*cmd->operands ? " " : "", cmd->operands);
	if (!brief) {
		tsr_text_puts(&help, "\n");
		tsr_put_wrapped(&help, cmd->help, 0, 0);
	}
	cli_collect_opts(cmd, &all);
	for (size_t i = 0; i < (brief ? 1 : NGROUPS); i++)
		put_group(&help, cmd, &all, i, brief);
	while (*end && *end != '\n' && most--)
		end += strcspn(end, "\n") + 1;
	tsr_text_printf(&help, "\nExamples:\n%.*s\n", (int)(end - examples), examples);
	if (brief)
		tsr_text_printf(&help, "All %u options: tersor %s --help\n", all.n, cmd->name);
	else
		tsr_put_wrapped(&help,
				"Exit status: 0 success; 1 a comparison or bound failed; 2 wrong "
				"usage; 3 malformed or unsupported input; 4 input/output error or "
				"out of resources; 128+n signal n.",
				0, 0);
	tsr_text_printf(&help, "Manual: man tersor-%s\n", cmd->name);
	cli_write_report(&help, NULL);
}

void cli_print_main_help(void)
{
	struct tsr_text help = { 0 };

	tsr_text_puts(
		&help,
		"Usage: tersor COMMAND [options] ...\n\n"
		"Packs FP32 training checkpoints into split BF16 weights and 8-bit optimizer\n"
		"state, restores them, and measures what that costs.\n\nCommands:\n");
	for (const struct cli_cmd *const *c = cli_cmds; *c; c++)
		tsr_text_printf(&help, "  %-12s%s\n", (*c)->name, (*c)->summary);
	tsr_text_puts(&help, "\nSee 'tersor COMMAND --help' or 'man tersor' for more.\n");
	cli_write_report(&help, NULL);
}
