/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines: parsed by the tables of options, then run. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <strings.h>
#include <unistd.h>

#include "base/arena.h"
#include "cli/words.h"
#include "cli/work.h"
#include "cli/files.h"
#include "cli/parts/parting.h"
#include "io/dir.h"
#include "io/file.h"
#include "io/temporary.h"

/* Inputs of one command. */
#define OPERANDS_MAX 4096

/* --- Parsing -------------------------------------------------------------------------------- */

/* A number, also in hexadecimal, or a size: 5K, 5m and 5GiB count by 1024, 5GB by 1000. */
static bool parse_number(const char *text, uint64_t *ret)
{
	static const char units[] = "KMGTkmgt";
	const char *unit;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*ret = strtoull(text, &end, strncasecmp(text, "0x", 2) == 0 ? 16 : 10);
	unit = *end ? strchr(units, *end) : NULL;
	if (errno || (*end && !unit))
		return false;
	if (unit) {
		const uint64_t base = strcasecmp(end + 1, "B") == 0 ? 1000 : 1024;

		if (end[1] && base == 1024 && strcasecmp(end + 1, "iB") != 0)
			return false;
		for (long i = (unit - units) % 4; i >= 0; i--) {
			if (*ret > UINT64_MAX / base)
				return false;
			*ret *= base;
		}
	}
	return true;
}

bool cli_next_word(const char **list_ref, char word[CLI_WORD_NBYTES])
{
	const char *list = *list_ref;
	size_t n;

	if (!list)
		return false;
	n = strcspn(list, ",");
	snprintf(word, CLI_WORD_NBYTES, "%.*s", (int)n, list);
	*list_ref = list[n] ? list + n + 1 : NULL;
	return true;
}

/* "a b c" as "a, b or c", each with @lead before it. */
static const char *list_words(const char *words, const char *lead, char list[256])
{
	size_t at = 0, n;

	for (const char *w = words; *w && at < 256; w += n + (w[n] == ' ')) {
		const char *gap = w == words ? "" : strchr(w, ' ') ? ", " : " or ";

		n = strcspn(w, " ");
		at += (size_t)snprintf(list + at, 256 - at, "%s%s%.*s", gap, lead, (int)n, w);
	}
	return list;
}

static int bad_word(const struct cli_cmd *cmd, const struct cli_opt *o, const char *found)
{
	char list[256];

	return cli_usage(cmd, "option --%s: found '%s', expected %s%s", o->name, found,
			 list_words(o->values, "", list),
			 o->type == CLI_WORDS ? ", or several with commas" : "");
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
	case CLI_WORD:
	case CLI_WORDS:
		/* Several have commas between them. */
		for (const char *w = value;; w += strcspn(w, ",") + 1) {
			const size_t n = o->type == CLI_WORD ? strlen(w) : strcspn(w, ",");

			if (!n || !cli_is_among(w, n, o->values))
				return bad_word(cmd, o, value);
			if (!w[n])
				break;
		}
		*(const char **)at = value;
		break;
	case CLI_STRING:
		*(const char **)at = cli_is_report(o) && strcmp(value, "-") == 0
					     ? TSR_STANDARD_OUTPUT
					     : value;
		break;
	case CLI_OPTIONAL:
		if (value && !cli_is_report(o) && !cli_is_among(value, strlen(value), o->values))
			return bad_word(cmd, o, value);
		*(struct cli_optional *)at = (struct cli_optional){
			true, value && strcmp(value, "-") != 0 ? value : NULL
		};
		break;
	case CLI_LIST: {
		struct cli_list *list = at;

		list->items[list->n++] = value;
		break;
	}
	case CLI_NUMBER:
		if (parse_number(value, at) && *(uint64_t *)at >= o->min &&
		    *(uint64_t *)at <= o->max)
			break;
		return cli_usage(cmd,
				 "option --%s: found '%s', expected a number from "
				 "%" PRIu64 " to %" PRIu64 "%s",
				 o->name, value, o->min, o->max,
				 strcmp(o->arg, "SIZE") == 0 ? ", such as 5G (2^30) or 5GB (10^9)"
							     : "");
	case CLI_REAL:
		if (cli_parse_double(value, at) &&
		    (o->least >= o->most ||
		     (*(double *)at >= o->least && *(double *)at <= o->most)))
			break;
		if (o->least < o->most)
			return cli_usage(cmd,
					 "option --%s: found '%s', expected a number from %g to %g",
					 o->name, value, o->least, o->most);
		return cli_usage(cmd, "option --%s: found '%s', expected a number", o->name, value);
	}
	return CLI_OK;
}

static int unknown_option(const struct cli_cmd *cmd, const struct cli_opts *all, const char *word)
{
	char name[64];
	struct tsr_nearest nearest = { .wrong = name };

	if (word[0] != '-' || word[1] != '-')
		return cli_usage(cmd, "unknown option '%s'", word);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
	for (unsigned i = 0; i < all->n; i++)
		tsr_nearest_offer(&nearest, all->opt[i]->name);
	if (nearest.name)
		return cli_usage(cmd, "unknown option '--%s'; did you mean '--%s'?", name,
				 nearest.name);
	return cli_usage(cmd, "unknown option '--%s'", name);
}

/* The @i-th list of the arguments, the operands last; NULL for an option of another type. */
static struct cli_list *list_at(const struct cli_opts *all, void *args, unsigned i)
{
	if (i == all->n)
		return &((struct cli_common *)args)->operands;
	return all->opt[i]->type == CLI_LIST ? (void *)((char *)args + all->opt[i]->at) : NULL;
}

/*
 * The report options --json and --csv may stand alone.  Behind a blank their FILE is "-", or a name with
 * the extension of that report: a checkpoint that follows is an operand.  *ret stays NULL without one.
 */
static int take_report_file(const struct cli_cmd *cmd, const struct cli_opt *o, int argc,
			    char **argv, const char **ret)
{
	const char *word = optind < argc ? argv[optind] : "", *dot = strrchr(word, '.');
	/* An index of shards is an input. */
	const bool named = dot && strcmp(dot + 1, o->name) == 0 && word[0] != '-' &&
			   (dot - word < 6 || strncmp(dot - 6, ".index", 6) != 0);

	if (!named && strcmp(word, "-") != 0) {
		if (!*word || *word == '-' || !(cmd->takes & CLI_READS) || access(word, F_OK) == 0)
			return CLI_OK;
		return cli_usage(
			cmd,
			"option --%s: '%s' is neither an input that exists nor called *.%s; "
			"--%s=%s takes any name",
			o->name, word, o->name, o->name, word);
	}
	if (named && cli_is_other_json(word))
		return cli_usage(cmd,
				 "option --%s: '%s' exists and is no report; put --%s behind the "
				 "operands to print, or write --%s=FILE to replace it",
				 o->name, word, o->name, o->name);
	*ret = argv[optind++];
	return CLI_OK;
}

static int parse(const struct cli_cmd *cmd, const struct cli_opts *all, int argc, char **argv,
		 void *args)
{
	struct cli_common *common = args;
	/* What a bound was called by some commands. */
	static const char *const old_names[] = { "gate", "tol" };
	struct option longs[68] = { 0 };
	char shorts[140] = ":";
	unsigned nlongs = all->n;
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
		for (unsigned k = 0; k < 2 && strcmp(o->name, "max-error") == 0; k++) {
			longs[nlongs] = longs[i];
			longs[nlongs++].name = old_names[k];
		}
	}
	opterr = 0;
	optind = 1;
	while ((found = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		const char *value = optarg;
		const struct cli_opt *o;
		unsigned i = 0;

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
		o = all->opt[found < 256 ? i : (unsigned)found - 256];
		if (found == 'h')
			((struct cli_common *)args)->brief = true;
		if (o->type == CLI_OPTIONAL && !value && cli_is_report(o))
			CLI_TRY(take_report_file(cmd, o, argc, argv, &value));
		CLI_TRY(store(cmd, o, value, args));
		common->given[common->ngiven++] = (struct cli_given){ o, !value && cli_is_report(o)
										 ? "-"
										 : value };
	}
	for (; optind < argc; optind++)
		common->operands.items[common->operands.n++] = argv[optind];
	return CLI_OK;
}

const char *cli_given(const struct cli_common *common, const char *names)
{
	char with[CLI_WORD_NBYTES];

	for (unsigned i = 0; i < common->ngiven; i++) {
		const struct cli_given *g = &common->given[i];

		snprintf(with, sizeof(with), "%s=%s", g->opt->name, g->value ? g->value : "");
		if (cli_is_among(g->opt->name, strlen(g->opt->name), names) ||
		    cli_is_among(with, strlen(with), names))
			return g->opt->name;
	}
	return common->output && cli_is_among("output", strlen("output"), names) ? "output" : NULL;
}

/* What the rows of the options that are given say of others. */
static int check_given(const struct cli_cmd *cmd, const struct cli_common *common)
{
	char list[256];

	for (unsigned i = 0; i < common->ngiven; i++) {
		const struct cli_opt *o = common->given[i].opt;
		const char *other = o->excludes ? cli_given(common, o->excludes) : NULL;

		if (other)
			return cli_usage(cmd, "--%s and --%s exclude each other", o->name, other);
		if (o->needs && !cli_given(common, o->needs))
			return cli_usage(cmd, "--%s needs %s", o->name,
					 list_words(o->needs, "--", list));
	}
	return CLI_OK;
}

/* As many as the usage line says: "A B", "IN...", "[FILE]". */
static int check_operands(const struct cli_cmd *cmd, const struct cli_common *common)
{
	unsigned least = 0, most = 0;

	for (const char *w = cmd->operands; *w; w += strcspn(w, " "), w += *w == ' ') {
		const bool many = strcspn(w, ".") < strcspn(w, " ");

		least += *w != '[';
		most = !many ? most + (most < OPERANDS_MAX) : *w == '[' ? UINT_MAX : OPERANDS_MAX;
	}
	if (common->operands.n < least)
		return cli_usage(cmd, "missing operand; usage: tersor %s [options]%s%s", cmd->name,
				 *cmd->operands ? " " : "", cmd->operands);
	if (common->operands.n > most)
		return cli_usage(cmd, "unexpected operand '%s'%s", common->operands.items[most],
				 cmd->output_needed ? "; an output goes behind -o" : "");
	return CLI_OK;
}

/* --- Running -------------------------------------------------------------------------------- */

/* What the driver of several processes decides. */
static int take_share(const struct cli_cmd *cmd, struct cli_common *common)
{
	static char device[24];
	const struct cli_shared_work *shared = cli_shared_work;

	if (!shared)
		return CLI_OK;
	if (common->part)
		return cli_usage(cmd, "--part: ranks are the parts");
	common->part = shared->part;
	if (!common->threads)
		common->threads = shared->threads;
	if (!common->device)
		return CLI_OK;
	CLI_TRY(cli_deal_device(cmd, common->device, shared->index_on_machine, device,
				sizeof(device)));
	common->device = device;
	return CLI_OK;
}

/* Without -o a name by that of the input; in a directory, if -o names one for a file. */
static void name_output(const struct cli_cmd *cmd, struct cli_common *common, char ret[PATH_MAX])
{
	const char *in = common->operands.items[0], *to = common->output;
	char name[PATH_MAX];

	if (to && (!*to || to[strlen(to) - 1] != '/' || !tsr_dir_is(to) || tsr_dir_is(in)))
		return;
	if (cmd->name_output(in, name, sizeof(name)) &&
	    snprintf(ret, PATH_MAX, "%s%s", to ? to : "", to ? tsr_path_name(name) : name) <
		    PATH_MAX)
		common->output = ret;
}

static int run_parsed(const struct cli_cmd *cmd, const struct cli_opts *all, void *args)
{
	struct cli_common *common = args;
	char output[PATH_MAX];
	struct cli_input input;
	bool done;
	int status;

	CLI_TRY(check_operands(cmd, common));
	/* A dry run writes nothing, so it needs no name. */
	if (common->dry_run && !common->output && cmd->output_needed)
		common->output = "-";
	if (cmd->name_output && common->operands.n == 1)
		name_output(cmd, common, output);
	if (cmd->output_needed && !common->output)
		return cli_usage(cmd, "no output; give it with -o OUT");
	CLI_TRY(check_given(cmd, common));
	CLI_TRY(cli_take_streams(cmd, all, args));
	CLI_TRY(cli_check_paths(all, args));
	CLI_TRY(take_share(cmd, common));
	CLI_TRY(cli_part_begin(cmd, all, args, &done));
	if (done)
		return CLI_OK;
	status = cli_parse_input(cmd, common, &input);
	if (status == CLI_OK) {
		status = cmd->run(cmd, args);
		cli_input_free(&input);
	}
	return cli_part_end(common, status);
}

int cli_run(const struct cli_cmd *cmd, int argc, char **argv)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(SIZE_MAX);
	struct cli_common *common = tsr_arena_alloc(arena, cmd->args_nbytes ? cmd->args_nbytes
									    : sizeof(*common));
	struct cli_opts all;
	size_t nwords = 1;
	bool ok = common;

	cli_collect_opts(cmd, &all);
	/* Short options can be many in one word; every list has room for all words. */
	for (int i = 0; i < argc; i++)
		nwords += strlen(argv[i]);
	if (ok) {
		common->given = tsr_arena_alloc(arena, nwords * sizeof(*common->given));
		ok = common->given;
	}
	for (unsigned i = 0; i <= all.n && ok; i++) {
		struct cli_list *list = list_at(&all, common, i);

		if (!list)
			continue;
		list->items = tsr_arena_alloc(arena, ((size_t)argc + 1) * sizeof(*list->items));
		ok = list->items;
	}
	if (!ok)
		return cli_fail(CLI_IO, "out of memory for the command line");
	CLI_TRY(parse(cmd, &all, argc, argv, common));
	if (!common->help)
		return run_parsed(cmd, &all, common);
	cli_print_help(cmd, common->brief);
	return CLI_OK;
}
