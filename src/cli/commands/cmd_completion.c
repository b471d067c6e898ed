/* SPDX-License-Identifier: Apache-2.0 */
/* tersor completion: scripts for bash, zsh and fish, made from the option tables. */

#include "cli/cli.h"

TSR_EMBED(completion_bash, "packaging/completion/tersor.bash");
TSR_EMBED(completion_zsh, "packaging/completion/tersor.zsh");
TSR_EMBED(completion_fish, "packaging/completion/tersor.fish");

/* Call @each for every option of a command. */
static void for_each_opt(const struct cli_cmd *cmd,
			 void (*each)(const struct cli_cmd *cmd, const struct cli_opt *o))
{
	struct cli_opts all;

	cli_collect_opts(cmd, &all);
	for (unsigned i = 0; i < all.n; i++)
		each(cmd, all.opt[i]);
}

/* The words that an option's argument can be. */
static void print_values(const struct cli_opt *o)
{
	const char *separator = "";
	enum tsr_kind kind;

	if (o->values[0] != '@' || !tsr_kind_find(o->values + 1, &kind)) {
		printf("%s", o->values);
		return;
	}
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (kind != TSR_KIND_OTHER && !((*c)->kinds & kind))
			continue;
		printf("%s%s", separator, (*c)->name);
		separator = " ";
	}
}

static bool takes_words(const struct cli_opt *o)
{
	return o->values && !cli_is_path(o);
}

/* Whether it takes several of its words, with commas between them. */
static bool takes_list(const struct cli_opt *o)
{
	return takes_words(o) && (o->type == CLI_WORDS || strcmp(o->arg, "LIST") == 0);
}

static const char *operand_words(const struct cli_cmd *cmd)
{
	return strcmp(cmd->name, "completion") == 0 ? "bash zsh fish" : NULL;
}

/* --- bash ----------------------------------------------------------------------------------- */

static void bash_opt_word(const struct cli_cmd *cmd, const struct cli_opt *o)
{
	(void)cmd;
	printf(" --%s", o->name);
}

static void bash_opt_values(const struct cli_cmd *cmd, const struct cli_opt *o)
{
	if (!takes_words(o))
		return;
	printf("\t%s:--%s) %swords=\"", cmd->name, o->name, takes_list(o) ? "list=1 " : "");
	print_values(o);
	printf("\" ;;\n");
}

static void bash_name(const struct cli_cmd *cmd)
{
	printf("%s ", cmd->name);
}

static void bash_values(const struct cli_cmd *cmd)
{
	for_each_opt(cmd, bash_opt_values);
}

static void bash_options(const struct cli_cmd *cmd)
{
	printf("\t%s) options=\"", cmd->name);
	for_each_opt(cmd, bash_opt_word);
	printf("\" operands=\"%s\" ;;\n", operand_words(cmd) ? operand_words(cmd) : "");
}

/* --- zsh ------------------------------------------------------------------------------------ */

/* Inside single quotes and brackets of an _arguments specification. */
static void print_zsh_text(const char *text)
{
	for (; text && *text; text++) {
		if (*text == '\'')
			printf("'\\''");
		else if (*text == '[' || *text == ']' || *text == ':')
			printf("\\%c", *text);
		else
			putchar(*text);
	}
}

static void zsh_opt(const struct cli_cmd *cmd, const struct cli_opt *o)
{
	char *words = cli_option_words(cmd, o);

	printf("\t\t'%s--%s%s[", o->type == CLI_LIST || o->type == CLI_COUNT ? "*" : "", o->name,
	       !o->arg			 ? ""
	       : o->type == CLI_OPTIONAL ? "=-"
					 : "=");
	print_zsh_text(words);
	free(words);
	printf("]");
	if (o->arg) {
		printf("%s", o->type == CLI_OPTIONAL ? "::" : ":");
		print_zsh_text(o->arg);
		printf(":");
		if (takes_words(o)) {
			printf("%s", takes_list(o) ? " _values -s , word " : "(");
			print_values(o);
			printf("%s", takes_list(o) ? "" : ")");
		} else if (cli_is_path(o)) {
			printf("_files");
		}
	}
	printf("' \\\n");
}

static void zsh_name(const struct cli_cmd *cmd)
{
	printf("\t\t'%s:", cmd->name);
	print_zsh_text(cmd->summary);
	printf("'\n");
}

static void zsh_options(const struct cli_cmd *cmd)
{
	printf("\t%s)\n\t\t_arguments \\\n", cmd->name);
	for_each_opt(cmd, zsh_opt);
	if (operand_words(cmd))
		printf("\t\t'1:shell:(%s)'\n\t\t;;\n", operand_words(cmd));
	else
		printf("\t\t'*:file:_files'\n\t\t;;\n");
}

/* --- fish ----------------------------------------------------------------------------------- */

static void print_fish_text(const char *text)
{
	for (; text && *text; text++) {
		if (*text == '\'' || *text == '\\')
			putchar('\\');
		putchar(*text);
	}
}

static void fish_opt(const struct cli_cmd *cmd, const struct cli_opt *o)
{
	char *words = cli_option_words(cmd, o);

	printf("complete -c tersor -n '__fish_seen_subcommand_from %s' -l %s", cmd->name, o->name);
	if (o->key)
		printf(" -s %c", o->key);
	if (o->arg && o->type != CLI_OPTIONAL)
		printf(" -r");
	if (takes_words(o)) {
		printf(" -f -a '(__tersor_%s ", takes_list(o) ? "list" : "words");
		print_values(o);
		printf(")'");
	}
	printf(" -d '");
	print_fish_text(words);
	free(words);
	printf("'\n");
}

static void fish_command(const struct cli_cmd *cmd)
{
	printf("complete -c tersor -f -n '__fish_use_subcommand; or __fish_seen_subcommand_from "
	       "help' "
	       "-a %s -d '",
	       cmd->name);
	print_fish_text(cmd->summary);
	printf("'\n");
	if (operand_words(cmd))
		printf("complete -c tersor -f -n '__fish_seen_subcommand_from %s' -a '%s'\n",
		       cmd->name, operand_words(cmd));
	for_each_opt(cmd, fish_opt);
}

/* --- The command ------------------------------------------------------------------------------ */

/* Scripts have "{{}}" where something of every command is put in. */
static const struct {
	const char *name, *script;
	void (*fill[3])(const struct cli_cmd *cmd);
} shells[] = {
	{ "bash", completion_bash, { bash_name, bash_values, bash_options } },
	{ "zsh", completion_zsh, { zsh_name, zsh_options } },
	{ "fish", completion_fish, { fish_command } },
};

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;
	const char *shell = common->operands.items[0], *at, *next;
	unsigned i = 0, n = 0;

	while (i < 3 && strcmp(shell, shells[i].name) != 0)
		i++;
	if (i == 3)
		return cli_usage(cmd, "unknown shell '%s', expected bash, zsh or fish", shell);
	for (at = shells[i].script; (next = strstr(at, "{{}}")); at = next + 4, n++) {
		printf("%.*s", (int)(next - at), at);
		for (const struct cli_cmd *const *c = cli_cmds; *c; c++)
			shells[i].fill[n](*c);
	}
	printf("%s", at);
	return CLI_OK;
}

TSR_EMBED(help_completion, "man/help/completion.txt");

const struct cli_cmd cmd_completion = {
	.name = "completion",
	.summary = "print a completion script for bash, zsh or fish",
	.operands = "SHELL",
	.help = help_completion,
	.run = run,
};
