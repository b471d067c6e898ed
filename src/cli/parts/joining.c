/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command whose parts are joined. */
#include "cli/parts/parting.h"

/* Words before those of the parts: the command, and what decides nothing. */
#define OWN_WORDS 4u

/* Run the command that the parts are of, in this process. */
static int run_joined(struct tsr_parts *parts, const struct cli_common *common)
{
	const struct tsr_part_request *r = tsr_part_request(parts);
	const struct cli_cmd *cmd = cli_find(r->command);
	char threads[40], quiet[] = "--no-progress", device[] = "--device=cpu";
	TSR_OWNED(free) char **words = NULL;
	size_t n = 0;
	int status;

	if (!cmd || !(cmd->takes & CLI_PARTS))
		return cli_fail(CLI_INPUT, "%s: its parts are of '%s', which has none", r->path,
				r->command);
	words = calloc(r->words.nbytes + OWN_WORDS + 1, sizeof(*words));
	if (!words)
		return cli_fail(CLI_IO, "out of memory for the command line");
	snprintf(threads, sizeof(threads), "--threads=%" PRIu64, common->threads);
	words[n++] = (char *)r->command;
	words[n++] = threads;
	if (common->no_progress)
		words[n++] = quiet;
	/* There is nothing to compute, and looking for GPUs takes longer than all the rest. */
	if (cmd->takes & CLI_COMPUTES)
		words[n++] = device;
	for (size_t at = 0; at < r->words.nbytes; at += strlen(r->words.bytes + at) + 1)
		words[n++] = r->words.bytes + at;
	cli_set_parts(parts);
	status = cli_run(cmd, (int)n, words);
	cli_set_parts(NULL);
	return status;
}

int cli_join(const char *path, const struct tsr_text *reports, unsigned n,
	     const struct cli_common *common)
{
	TSR_OWNED(tsr_part_free) struct tsr_parts *parts = NULL;
	struct tsr_err err = { 0 };
	int status;

	if (tsr_part_join(path, reports, n, &parts, &err) != TSR_OK)
		return cli_error(&err);
	status = run_joined(parts, common);
	/* A verdict is an outcome too: what it was made of is of no more use. */
	if (status == CLI_OK || status == CLI_DIFFERS)
		tsr_part_remove(parts, (unsigned)common->threads);
	return status;
}
