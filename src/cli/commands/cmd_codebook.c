/* SPDX-License-Identifier: Apache-2.0 */
/* tersor codebook: the blocks and the codebook that Gefen's state would have. */
#include "cli/files.h"
#include "cli/operations.h"
#include "report/reports.h"

struct args {
	struct cli_common common;
	struct cli_learning learning;
	bool gradients;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = {
	CLI_OPT("partition", "RULE", CLI_WORD, learning.partition, CLI_PARTITION_RULES),
	CLI_OPT("compat", "NAME", CLI_WORD, learning.compat, "gefen"),
	CLI_OPT("few-bins", NULL, CLI_FLAG, learning.few, NULL),
	CLI_OPT("gradients", NULL, CLI_FLAG, gradients, NULL),
	CLI_OPT("svg", "FILE", CLI_STRING, common.report[CLI_SVG].value, "@report"),
	{ 0 }
};

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	const struct cli_list *in = &a->common.operands;
	const char *partition = a->learning.partition;
	TSR_OWNED(tsr_learned_free) struct tsr_learned *l = NULL;
	struct tsr_report r;

	CLI_TRY(cli_check_reports(&a->common));
	CLI_TRY(cli_learn(&a->learning, &a->common, in,
			  in->n == 1 && tsr_recording_probe(in->items[0]), a->gradients, &l));
	r = cli_report(cmd, &a->common, NULL);
	tsr_json_put_string(&r.json, "partition", partition ? partition : "adjacent");
	tsr_learned_report(l, &r);
	return cli_end_report(&r, &a->common);
}

TSR_EMBED(help_codebook, "man/help/codebook.txt");

const struct cli_cmd cmd_codebook = {
	.name = "codebook",
	.summary = "learn Gefen's blocks and codebook from a recording or a checkpoint",
	.operands = "IN...",
	.help = help_codebook,
	.opts = opts,
	.takes = CLI_READS | CLI_WORKS | CLI_REPORTS | CLI_NUMBERS,
	.args_nbytes = sizeof(struct args),
	.run = run,
};
