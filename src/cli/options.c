/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines: parsing by table, help, and the nearest name for a mistyped one. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"

#define COLUMNS 80
#define HELP_COLUMN 26

#define COMMON(field) offsetof(struct cli_common, field)

static const struct cli_opt opt_help = { "help", 'h', NULL, CLI_FLAG,	     COMMON(help),
					 0,	 0,   NULL, "show this help" };
static const struct cli_opt opts_report[] = {
	{ "json", 0, "FILE", CLI_OPTIONAL, COMMON(json), 0, 0, "@report",
	  "print one JSON object, or write it to FILE" },
	{ "quiet", 'q', NULL, CLI_COUNT, COMMON(quiet), 0, 0, NULL,
	  "no warnings; given twice, no report either" },
	{ "verbose", 'v', NULL, CLI_COUNT, COMMON(verbose), 0, 0, NULL,
	  "say more: every tensor, where there are any" },
};
static const struct cli_opt opts_long_work[] = {
	{ "threads", 'j', "N", CLI_NUMBER, COMMON(threads), 0, 256, NULL,
	  "worker threads (default 0: one per processor)" },
	{ "no-progress", 0, NULL, CLI_FLAG, COMMON(no_progress), 0, 0, NULL, "no progress bar" },
};

const struct cli_opt *cli_common_opts(const struct cli_cmd *cmd)
{
	static struct cli_opt opts[8];
	unsigned n = 0;

	memset(opts, 0, sizeof(opts));
	for (unsigned i = 0; cmd->long_work && i < 2; i++)
		opts[n++] = opts_long_work[i];
	for (unsigned i = 0; cmd->reports && i < 3; i++)
		opts[n++] = opts_report[i];
	opts[n] = opt_help;
	return opts;
}

/* --- Nearest name --------------------------------------------------------------------------- */

#define NAME_MAX_COMPARED 40

static unsigned edit_distance(const char *a, const char *b)
{
	unsigned row[NAME_MAX_COMPARED + 1];
	const size_t na = strlen(a), nb = strlen(b);

	if (na > NAME_MAX_COMPARED || nb > NAME_MAX_COMPARED)
		return NAME_MAX_COMPARED;
	for (unsigned j = 0; j <= nb; j++)
		row[j] = j;
	for (unsigned i = 1; i <= na; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			const unsigned substitute = diagonal + (a[i - 1] != b[j - 1]);
			unsigned least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;

			diagonal = row[j];
			row[j] = substitute < least ? substitute : least;
		}
	}
	return row[nb];
}

const char *cli_nearest(const char *wrong, const char *(*next)(void *ctx), void *ctx)
{
	const char *best = NULL, *name;
	unsigned least = (unsigned)(strlen(wrong) / 3) + 2;

	while ((name = next(ctx))) {
		const unsigned distance = edit_distance(wrong, name);

		if (distance < least) {
			least = distance;
			best = name;
		}
	}
	return best;
}

/* --- Parsing -------------------------------------------------------------------------------- */

/* All options of a command: its own, then the common ones. */
struct all_opts {
	const struct cli_opt *opt[64];
	unsigned n;
	unsigned next; /* for next_opt_name() */
};

static void collect(const struct cli_cmd *cmd, struct all_opts *all)
{
	all->n = all->next = 0;
	for (const struct cli_opt *o = cmd->opts; o && o->name; o++)
		all->opt[all->n++] = o;
	for (const struct cli_opt *o = cli_common_opts(cmd); o->name; o++)
		all->opt[all->n++] = o;
}

static const char *next_opt_name(void *ctx)
{
	struct all_opts *all = ctx;

	return all->next < all->n ? all->opt[all->next++]->name : NULL;
}

static bool parse_number(const char *text, uint64_t *ret)
{
	unsigned shift = 0;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (errno)
		return false;
	if (*end == 'K' || *end == 'M' || *end == 'G')
		shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
	if (shift) {
		end++;
		if (strcmp(end, "iB") == 0 || strcmp(end, "B") == 0)
			end += strlen(end);
	}
	if (*end || *ret > UINT64_MAX >> shift)
		return false;
	*ret <<= shift;
	return true;
}

static int store(const struct cli_cmd *cmd, const struct cli_opt *o, const char *value, void *args)
{
	void *at = (char *)args + o->at;

	switch (o->type) {
	case CLI_FLAG:
		*(bool *)at = true;
		break;
	case CLI_COUNT:
		(*(unsigned *)at)++;
		break;
	case CLI_STRING:
		*(const char **)at = value;
		break;
	case CLI_OPTIONAL:
		*(struct cli_optional *)at = (struct cli_optional){ true, value };
		break;
	case CLI_LIST: {
		struct cli_list *list = at;

		list->items[list->n++] = value;
		break;
	}
	case CLI_NUMBER:
		if (!parse_number(value, at) || *(uint64_t *)at < o->min ||
		    *(uint64_t *)at > o->max)
			return cli_usage(
				cmd, "option --%s: found '%s', expected a number from %llu to %llu",
				o->name, value, (unsigned long long)o->min,
				(unsigned long long)o->max);
		break;
	}
	return CLI_OK;
}

static int unknown_option(const struct cli_cmd *cmd, struct all_opts *all, const char *word)
{
	char name[64];
	const char *near;

	if (word[0] != '-' || word[1] != '-')
		return cli_usage(cmd, "unknown option '%s'", word);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
	near = cli_nearest(name, next_opt_name, all);
	if (near)
		return cli_usage(cmd, "unknown option '--%s'; did you mean '--%s'?", name, near);
	return cli_usage(cmd, "unknown option '--%s'", name);
}

/* Every list has room for as many items as there are words. */
static bool allocate_lists(const struct all_opts *all, void *args, int argc, bool release)
{
	struct cli_common *common = args;
	bool ok = true;

	for (unsigned i = 0; i <= all->n; i++) {
		struct cli_list *list = &common->operands;

		if (i < all->n && all->opt[i]->type != CLI_LIST)
			continue;
		if (i < all->n)
			list = (struct cli_list *)(void *)((char *)args + all->opt[i]->at);
		if (release) {
			free(list->items);
			continue;
		}
		list->items = calloc((size_t)argc + 1, sizeof(*list->items));
		ok = ok && list->items;
	}
	return ok;
}

static int parse(const struct cli_cmd *cmd, struct all_opts *all, int argc, char **argv, void *args)
{
	struct cli_common *common = args;
	struct option longs[66] = { 0 };
	char shorts[140] = ":";
	int found;

	for (unsigned i = 0; i < all->n; i++) {
		const struct cli_opt *o = all->opt[i];
		const int has_arg = !o->arg		      ? no_argument
				    : o->type == CLI_OPTIONAL ? optional_argument
							      : required_argument;
		char key[4] = { o->key, has_arg == required_argument ? ':' : '\0', '\0' };

		longs[i] = (struct option){ o->name, has_arg, NULL, 256 + (int)i };
		if (o->key)
			strcat(shorts, key);
	}
	opterr = 0;
	optind = 1;
	while ((found = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		unsigned i = 0;
		int status;

		if (found == '?' && optopt && optopt < 256) {
			const char word[] = { '-', (char)optopt, '\0' };

			return unknown_option(cmd, all, word);
		}
		if (found == '?' && optopt >= 256)
			return cli_usage(cmd, "option --%s takes no argument",
					 all->opt[optopt - 256]->name);
		if (found == '?')
			return unknown_option(cmd, all, argv[optind - 1]);
		if (found == ':')
			return cli_usage(cmd, "option '%s' needs an argument", argv[optind - 1]);
		while (found < 256 && all->opt[i]->key != found)
			i++;
		status = store(cmd, all->opt[found < 256 ? i : (unsigned)found - 256], optarg,
			       args);
		if (status != CLI_OK)
			return status;
	}
	for (; optind < argc; optind++)
		common->operands.items[common->operands.n++] = argv[optind];
	return CLI_OK;
}

static int check_operands(const struct cli_cmd *cmd, const struct cli_common *common)
{
	if (common->operands.n < cmd->operands_min)
		return cli_usage(cmd, "missing operand; usage: tersor %s [options]%s%s", cmd->name,
				 *cmd->operands ? " " : "", cmd->operands);
	if (common->operands.n > cmd->operands_max)
		return cli_usage(cmd, "unexpected operand '%s'",
				 common->operands.items[cmd->operands_max]);
	return CLI_OK;
}

/* The directory of a path, resolved as far as stat() does. */
static bool stat_directory(const char *path, struct stat *st)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	const bool found = dir && stat(dir, st) == 0;

	free(dir);
	return found;
}

/* Whether two paths name one file, or would if they were created. */
static bool same_file(const char *a, const char *b)
{
	const char *a_name = strrchr(a, '/'), *b_name = strrchr(b, '/');
	struct stat sa, sb;

	if (stat(a, &sa) == 0 && stat(b, &sb) == 0)
		return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
	if (strcmp(a_name ? a_name + 1 : a, b_name ? b_name + 1 : b) != 0)
		return false;
	return stat_directory(a, &sa) && stat_directory(b, &sb) && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

/* The file that an option names, if it names one: "@file" and "@report". */
static const char *path_of(const struct cli_opt *o, const void *args)
{
	const void *at = (const char *)args + o->at;

	if (!o->values || (strcmp(o->values, "@file") != 0 && strcmp(o->values, "@report") != 0))
		return NULL;
	if (o->type == CLI_OPTIONAL)
		return ((const struct cli_optional *)at)->value;
	return o->type == CLI_STRING ? *(const char *const *)at : NULL;
}

static int check_not(const struct cli_opt *report, const char *path, const char *other)
{
	if (!other || !same_file(other, path))
		return CLI_OK;
	return cli_fail(CLI_IO, "%s: --%s would replace %s, another file of this command", path,
			report->name, other);
}

static int check_list_not(const struct cli_opt *report, const char *path,
			  const struct cli_list *list)
{
	int status = CLI_OK;

	for (unsigned i = 0; i < list->n && status == CLI_OK; i++)
		status = check_not(report, path, list->items[i]);
	return status;
}

/* The output is checked by the command against what it reads: operands are left to it. */
static bool is_output(const struct cli_opt *o)
{
	return strcmp(o->name, "output") == 0;
}

/* A report must not land on any other file that the command line names, nor the output. */
static int check_report_paths(const struct all_opts *all, const void *args)
{
	const struct cli_common *common = args;
	int status = CLI_OK;

	for (unsigned i = 0; i < all->n && status == CLI_OK; i++) {
		const struct cli_opt *o = all->opt[i];
		const char *path = path_of(o, args);

		if (!path || (strcmp(o->values, "@report") != 0 && !is_output(o)))
			continue;
		if (!is_output(o))
			status = check_list_not(o, path, &common->operands);
		for (unsigned j = 0; j < all->n && status == CLI_OK; j++) {
			const struct cli_opt *other = all->opt[j];

			if (j == i)
				continue;
			status = check_not(o, path, path_of(other, args));
			if (other->type == CLI_LIST && other->values && status == CLI_OK &&
			    strcmp(other->values, "@file") == 0)
				status = check_list_not(
					o, path, (const void *)((const char *)args + other->at));
		}
	}
	return status;
}

int cli_run(const struct cli_cmd *cmd, int argc, char **argv)
{
	struct all_opts all;
	void *args = calloc(1, cmd->args_nbytes);
	struct cli_common *common = args;
	int status = CLI_OK;

	collect(cmd, &all);
	if (!args || !allocate_lists(&all, args, argc, false))
		status = cli_fail(CLI_IO, "out of memory for the command line");
	if (status == CLI_OK)
		status = parse(cmd, &all, argc, argv, args);
	if (status == CLI_OK && common->help)
		cli_print_help(cmd);
	else if (status == CLI_OK)
		status = check_operands(cmd, common);
	if (status == CLI_OK && !common->help)
		status = check_report_paths(&all, args);
	if (status == CLI_OK && !common->help)
		status = cmd->run(cmd, args);
	if (args)
		allocate_lists(&all, args, argc, true);
	free(args);
	return status;
}

/* --- Help ----------------------------------------------------------------------------------- */

/* Print text from the current column on, wrapped, with later lines indented. */
static void print_wrapped(const char *text, unsigned column, unsigned indent)
{
	while (*text) {
		size_t len = strlen(text);
		const size_t room = COLUMNS - column;

		if (len > room) {
			len = room;
			while (len && text[len] != ' ')
				len--;
			if (!len)
				len = strcspn(text, " ");
		}
		printf("%.*s\n", (int)len, text);
		text += len;
		while (*text == ' ')
			text++;
		column = indent;
		if (*text)
			printf("%*s", (int)indent, "");
	}
}

static void print_option(const struct cli_opt *o)
{
	char head[80];
	const bool optional = o->type == CLI_OPTIONAL;
	int width;

	snprintf(head, sizeof(head), "  %c%c%s --%s%s%s%s", o->key ? '-' : ' ',
		 o->key ? o->key : ' ', o->key ? "," : " ", o->name,
		 !o->arg    ? ""
		 : optional ? "[="
			    : " ",
		 o->arg ? o->arg : "", optional ? "]" : "");
	width = printf("%s", head);
	if (width >= HELP_COLUMN - 1) {
		printf("\n");
		width = 0;
	}
	printf("%*s", HELP_COLUMN - width, "");
	print_wrapped(o->help, HELP_COLUMN, HELP_COLUMN);
}

void cli_print_help(const struct cli_cmd *cmd)
{
	struct all_opts all;

	printf("Usage: tersor %s [options]%s%s\n\n", cmd->name, *cmd->operands ? " " : "",
	       cmd->operands);
	print_wrapped(cmd->details, 0, 0);
	printf("\nOptions:\n");
	collect(cmd, &all);
	for (unsigned i = 0; i < all.n; i++)
		print_option(all.opt[i]);
	if (cmd->examples)
		printf("\nExamples:\n%s", cmd->examples);
	printf("\nExit status: 0 done; 1 a comparison or bound failed; 2 usage; 3 malformed or\n"
	       "unsupported input; 4 input/output error or out of resources; 128+n signal n.\n"
	       "Manual: man tersor-%s\n",
	       cmd->name);
}

void cli_print_main_help(void)
{
	printf("Usage: tersor COMMAND [options] ...\n\n"
	       "Training state on disk: packs FP32 checkpoints into split BF16 weights and 8-bit\n"
	       "optimizer state, and back; measures what that costs.\n\nCommands:\n");
	for (const struct cli_cmd *const *c = cli_cmds; *c; c++)
		printf("  %-12s%s\n", (*c)->name, (*c)->summary);
	printf("\n'tersor COMMAND --help' tells more; so does 'man tersor'.\n");
}
