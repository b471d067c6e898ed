/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in parts: --part, and what `join` runs. */
#include "cli/parts/parting.h"

#include "cli/files.h"
#include "cli/work.h"
#include "io/temporary.h"

static struct tsr_parts *current;

struct tsr_parts *cli_parts(void)
{
	return current;
}

void cli_set_parts(struct tsr_parts *parts)
{
	current = parts;
}

int cli_part_refuse(const struct cli_cmd *cmd, const char *what)
{
	return current ? cli_usage(cmd, "%s is not done in parts", what) : CLI_OK;
}

/* --- What a command line says ------------------------------------------------------------------- */

/* A word of a command line and its NUL. */
static void add(struct tsr_text *words, const char *name, const char *value)
{
	if (name)
		tsr_text_printf(words, "--%s%s%s", name, value ? "=" : "", value ? value : "");
	else
		tsr_text_puts(words, value);
	tsr_text_putc(words, '\0');
}

/* In one order, whatever the user's was. */
static void add_all(struct tsr_text *w, const struct cli_opts *all, const struct cli_common *common)
{
	for (unsigned i = 0; i < all->n; i++) {
		const struct cli_opt *o = all->opt[i];
		/* Some decide nothing of what comes out. */
		const bool free = cli_is_among(o->name, strlen(o->name),
					       "part continue threads no-progress device help");

		for (unsigned k = 0; k < common->ngiven && !free; k++) {
			if (common->given[k].opt == o)
				add(w, o->name, common->given[k].value);
		}
	}
	add(w, NULL, "--");
	for (unsigned i = 0; i < common->operands.n; i++)
		add(w, NULL, common->operands.items[i]);
}

/* --- One part ----------------------------------------------------------------------------------- */

/* Reports of parts are beside what the command writes: its output, or else its first report in a file. */
static const char *base_of(const struct cli_common *common)
{
	const char *paths[CLI_NREPORTS];

	return common->output ? common->output : cli_report_paths(common, paths) ? paths[0] : NULL;
}

/* What the driver of several processes is told when a part is done. */
static int tell_driver(const struct tsr_part_request *r, const struct tsr_text *report)
{
	struct cli_shared_work *shared = cli_shared_work;

	if (!shared)
		return CLI_OK;
	shared->path = strdup(r->path);
	if (r->in_memory)
		tsr_text_put(&shared->report, report->bytes, report->nbytes);
	return shared->path && !shared->report.failed
		       ? CLI_OK
		       : cli_fail(CLI_IO, "%s: out of memory for the report of a part", r->path);
}

static int begin(const struct cli_cmd *cmd, const struct cli_common *common,
		 const struct tsr_text *words, bool *done_ret)
{
	struct tsr_part_request request = { .command = cmd->name, .words = *words };
	const char *base = base_of(common), *text = common->part;
	struct tsr_err err = { 0 };
	enum tsr_status status = TSR_OK;
	TSR_OWNED(free) char *path = NULL;
	char end;

	if (strspn(text, "0123456789/") != strlen(text) || strlen(text) >= 14 ||
	    sscanf(text, "%u/%u%c", &request.number, &request.count, &end) != 2 ||
	    request.number < 1 || request.number > request.count || request.count > TSR_PARTS_MAX)
		return cli_usage(cmd, "option --part: found '%s', expected I/N with I from 1 to N",
				 common->part);
	/* Processes with a driver pass on their reports; without an output there is nothing to go on with. */
	request.in_memory = cli_shared_work && !common->output;
	if (!base && !request.in_memory)
		return cli_usage(cmd, "--part needs a report in a file, such as --json FILE");
	for (unsigned i = 0; i < common->operands.n; i++) {
		if (strcmp(common->operands.items[i], TSR_STANDARD_INPUT) == 0)
			return cli_usage(cmd, "--part: parts cannot share the standard input");
	}
	if (common->output && strcmp(common->output, TSR_STANDARD_OUTPUT) == 0)
		return cli_usage(cmd, "--part: parts cannot share the standard output");
	if (common->dry_run)
		return cli_usage(cmd, "--part does not go with --dry-run");
	path = tsr_path_trim(base ? base : cmd->name);
	if (!path)
		return cli_fail(CLI_IO, "out of memory for the command line");
	request.path = path;
	if (common->continues && !request.in_memory)
		status = tsr_part_is_done(&request, done_ret, &err);
	if (status == TSR_OK && !*done_ret)
		status = tsr_part_new(&request, &current, &err);
	if (status != TSR_OK)
		return cli_error(&err);
	if (*done_ret && cli_wants_text(common))
		printf("%s: part %u of %u was done before\n", tsr_format_name(path, 60).text,
		       request.number, request.count);
	return *done_ret ? tell_driver(&request, NULL) : CLI_OK;
}

int cli_part_begin(const struct cli_cmd *cmd, const struct cli_opts *all, const void *args,
		   bool *done_ret)
{
	const struct cli_common *common = args;
	TSR_SCOPED(tsr_text_free) struct tsr_text words = { 0 };

	*done_ret = false;
	if (!common->part && common->continues)
		return cli_usage(cmd, "--continue goes with --part");
	if (!common->part)
		return CLI_OK;
	if (current)
		return cli_usage(cmd, "--part does not go with parts that are joined");
	add_all(&words, all, common);
	return words.failed ? cli_fail(CLI_IO, "out of memory for the command line")
			    : begin(cmd, common, &words, done_ret);
}

int cli_part_write(void)
{
	struct tsr_err err = { 0 };

	return tsr_part_end(current, &err) == TSR_OK ? CLI_OK : cli_error(&err);
}

int cli_part_end(const struct cli_common *common, int status)
{
	const struct tsr_part_request *r;
	struct tsr_part_share share;

	if (!common->part)
		return status;
	r = tsr_part_request(current);
	if (status == CLI_OK && !tsr_part_text(current)) {
		status = cli_fail(CLI_INPUT, "%s: was not done in parts", r->path);
	} else if (status == CLI_OK) {
		share = tsr_part_share(current);
		if (cli_wants_text(common))
			printf("%s: part %u of %u: %s of %s\n", tsr_format_name(r->path, 60).text,
			       r->number, r->count, tsr_format_bytes((double)share.nbytes).text,
			       tsr_format_bytes((double)share.all_nbytes).text);
		status = tell_driver(r, tsr_part_text(current));
	}
	tsr_part_free(current);
	current = NULL;
	return status;
}
