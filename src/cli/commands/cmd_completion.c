/* SPDX-License-Identifier: Apache-2.0 */
/* tersor completion: scripts for bash, zsh and fish, made from the option tables. */

#include "cli/cli.h"

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

static bool takes_file(const struct cli_opt *o)
{
	return o->values && (strcmp(o->values, "@file") == 0 || strcmp(o->values, "@report") == 0);
}

static bool takes_words(const struct cli_opt *o)
{
	return o->values && !takes_file(o);
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

static void print_bash(void)
{
	printf("# bash completion for tersor: source it, or put it into\n"
	       "# /usr/share/bash-completion/completions/tersor\n"
	       "_tersor()\n{\n"
	       "\tlocal cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"\" cmd=\"${COMP_WORDS[1]}\" "
	       "words=\"\" list=\"\" lead=\"\" options=\"\" operands=\"\"\n"
	       "\tlocal commands=\"");
	for (const struct cli_cmd *const *c = cli_cmds; *c; c++)
		printf("%s ", (*c)->name);
	printf("help\"\n"
	       "\tCOMPREPLY=()\n"
	       "\t((COMP_CWORD > 0)) && prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
	       "\t# --option=value is three words, or one where COMP_WORDBREAKS lacks the =\n"
	       "\tif [[ $cur == --*=* ]]; then\n"
	       "\t\tprev=\"${cur%%%%=*}\" lead=\"${cur%%%%=*}=\" cur=\"${cur#*=}\"\n"
	       "\telif [[ $cur == = ]]; then\n\t\tcur=\"\"\n"
	       "\telif [[ $prev == = ]]; then\n\t\tprev=\"${COMP_WORDS[COMP_CWORD-2]}\"\n\tfi\n"
	       "\tcase \"$cmd:$prev\" in\n");
	for (const struct cli_cmd *const *c = cli_cmds; *c; c++)
		for_each_opt(*c, bash_opt_values);
	printf("\tesac\n\tcase \"$cmd\" in\n");
	for (const struct cli_cmd *const *c = cli_cmds; *c; c++) {
		printf("\t%s) options=\"", (*c)->name);
		for_each_opt(*c, bash_opt_word);
		printf("\" operands=\"%s\" ;;\n", operand_words(*c) ? operand_words(*c) : "");
	}
	printf("\thelp) operands=$commands ;;\n\tesac\n"
	       "\t# of a list, the word behind the last comma\n"
	       "\tif [[ -n $list && $cur == *,* ]]; then\n"
	       "\t\tlead+=\"${cur%%,*},\" cur=\"${cur##*,}\"\n\tfi\n"
	       "\tif ((COMP_CWORD == 1)); then\n\t\twords=$commands\n"
	       "\telif [[ -z $words && $cur == -* ]]; then\n\t\twords=$options\n"
	       "\telif [[ -z $words ]]; then\n\t\twords=$operands\n\tfi\n"
	       "\tif [[ -n $words ]]; then\n"
	       "\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
	       "\telse\n"
	       "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
	       "\tfi\n"
	       "\tCOMPREPLY=(\"${COMPREPLY[@]/#/$lead}\")\n}\n"
	       "complete -o filenames -F _tersor tersor\n");
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
		} else if (takes_file(o)) {
			printf("_files");
		}
	}
	printf("' \\\n");
}

static void print_zsh(void)
{
	printf("#compdef tersor\n"
	       "# zsh completion for tersor: put it into a directory of $fpath as _tersor\n"
	       "_tersor()\n{\n"
	       "\tlocal -a commands\n\tcommands=(\n");
	for (const struct cli_cmd *const *c = cli_cmds; *c; c++) {
		printf("\t\t'%s:", (*c)->name);
		print_zsh_text((*c)->summary);
		printf("'\n");
	}
	printf("\t)\n\tif ((CURRENT == 2)); then\n\t\t_describe command "
	       "commands\n\t\treturn\n\tfi\n"
	       "\tlocal cmd=$words[2]\n\tshift words\n\t((CURRENT--))\n\tcase $cmd in\n");
	for (const struct cli_cmd *const *c = cli_cmds; *c; c++) {
		printf("\t%s)\n\t\t_arguments \\\n", (*c)->name);
		for_each_opt(*c, zsh_opt);
		if (operand_words(*c))
			printf("\t\t'1:shell:(%s)'\n\t\t;;\n", operand_words(*c));
		else
			printf("\t\t'*:file:_files'\n\t\t;;\n");
	}
	printf("\thelp) _describe command commands ;;\n\tesac\n}\n_tersor \"$@\"\n");
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

static void print_fish(void)
{
	printf("# fish completion for tersor: put it into "
	       "~/.config/fish/completions/tersor.fish\n"
	       "# An empty description behind the tab: else fish shows the option's beside each "
	       "word.\n"
	       "function __tersor_words\n\tprintf '%%s\\t\\n' $argv\nend\n"
	       "function __tersor_list\n"
	       "\tset -l lead (commandline -ct | string replace -r '^-[^=,]*=' '' | string match "
	       "-r '.*,')\n"
	       "\t__tersor_words \"$lead\"$argv\nend\n");
	for (const struct cli_cmd *const *c = cli_cmds; *c; c++) {
		printf("complete -c tersor -f -n '__fish_use_subcommand; or "
		       "__fish_seen_subcommand_from help' -a %s -d '",
		       (*c)->name);
		print_fish_text((*c)->summary);
		printf("'\n");
		if (operand_words(*c))
			printf("complete -c tersor -f -n '__fish_seen_subcommand_from %s' -a "
			       "'%s'\n",
			       (*c)->name, operand_words(*c));
		for_each_opt(*c, fish_opt);
	}
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;
	const char *shell = common->operands.items[0];

	if (strcmp(shell, "bash") == 0)
		print_bash();
	else if (strcmp(shell, "zsh") == 0)
		print_zsh();
	else if (strcmp(shell, "fish") == 0)
		print_fish();
	else
		return cli_usage(cmd, "unknown shell '%s', expected bash, zsh or fish", shell);
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
