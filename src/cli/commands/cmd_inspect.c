/* SPDX-License-Identifier: Apache-2.0 */
/* tersor inspect: what a checkpoint or a recording contains, from its headers. */

#include "cli/operations.h"
#include "cli/files.h"
#include "report/checkpoints/checkpoint_reports.h"

/* A recording, with the headers of all its steps. */
static int inspect_recording(const struct cli_cmd *cmd, const struct cli_common *common,
			     const char *path)
{
	TSR_OWNED(tsr_recording_close) struct tsr_recording *recording = NULL;
	TSR_OWNED(tsr_recording_summary_free) struct tsr_recording_summary *s = NULL;
	const char *first = NULL;
	struct tsr_report r;
	struct tsr_err err;
	size_t n = 0;

	if (tsr_recording_open(path, &common->open, &recording, &err) != TSR_OK ||
	    tsr_recording_summarize(recording, &s, &err) != TSR_OK)
		return cli_error(&err);
	for (size_t i = 0; i < s->ngradients; i++) {
		if (s->gradients[i].group)
			continue;
		first = first ? first : s->gradients[i].name;
		n++;
	}
	if (n)
		cli_warn(common, "%s: tensor %.200s: is in no group of the manifest (%zu such)",
			 recording->path, first, n);
	r = cli_report(cmd, common, NULL);
	tsr_recording_report(s, &r);
	return cli_end_report(&r, common);
}

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;
	const struct cli_list *in = &common->operands;
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *c = NULL;
	struct tsr_err err = { 0 };
	struct tsr_report r;

	if (in->n == 1 && tsr_recording_probe(in->items[0]))
		return inspect_recording(cmd, common, in->items[0]);
	if (in->n == 1 && tsr_directory_is_packed(in->items[0]))
		return cli_inspect_directory(cmd, common);
	if (tsr_checkpoint_open(in->items, in->n, &common->open, &c, &err) != TSR_OK ||
	    tsr_names_assign(c, NULL, 0, &err) != TSR_OK)
		return cli_error(&err);
	r = cli_report(cmd, common, NULL);
	cli_warn_notes(common, c);
	tsr_checkpoint_report(c, &r);
	return cli_end_report(&r, common);
}

TSR_EMBED(help_inspect, "man/help/inspect.txt");

const struct cli_cmd cmd_inspect = {
	.name = "inspect",
	.summary = "show what a checkpoint or recording contains, from its headers",
	.operands = "IN...",
	.help = help_inspect,
	.takes = CLI_READS | CLI_REPORTS | CLI_NUMBERS,
	.run = run,
};
