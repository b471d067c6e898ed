/* SPDX-License-Identifier: Apache-2.0 */
/* The help texts, made from the tables of commands and options. */
#include <stdio.h>

#include "cli/output.h"
#include "report/render/format.h"

#define HELP_COLUMN 26

static void put_option(struct tsr_text *help, const struct cli_opt *o)
{
	const bool optional = o->type == CLI_OPTIONAL;
	char head[80], key[8] = "   ";
	int width;

	if (o->key)
		snprintf(key, sizeof(key), "-%c,", o->key);
	width = snprintf(head, sizeof(head), "  %s --%s%s%s%s", key, o->name,
			 !o->arg    ? ""
			 : optional ? " ["
				    : " ",
			 o->arg ? o->arg : "", optional ? "]" : "");
	if (width > HELP_COLUMN - 2)
		tsr_text_printf(help, "%s\n%*s", head, HELP_COLUMN, "");
	else
		tsr_text_printf(help, "%-*s", HELP_COLUMN, head);
	tsr_put_wrapped(help, o->help, HELP_COLUMN, HELP_COLUMN);
}

void cli_print_help(const struct cli_cmd *cmd)
{
	struct tsr_text help = { 0 };
	struct cli_opts all;

	tsr_text_printf(&help, "Usage: tersor %s [options]%s%s\n\n", cmd->name,
			*cmd->operands ? " " : "", cmd->operands);
	tsr_put_wrapped(&help, cmd->details, 0, 0);
	tsr_text_puts(&help, "\nOptions:\n");
	cli_collect_opts(cmd, &all);
	for (unsigned i = 0; i < all.n; i++)
		put_option(&help, all.opt[i]);
	if (cmd->examples)
		tsr_text_printf(&help, "\nExamples:\n%s", cmd->examples);
	tsr_text_puts(&help, "\n");
	tsr_put_wrapped(&help,
			"Exit status: 0 success; 1 a comparison or bound failed; 2 wrong usage; 3 "
			"malformed or unsupported input; 4 input/output error or out of resources; "
			"128+n signal n.",
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
