/* SPDX-License-Identifier: Apache-2.0 */
/* tersor codecs: the list of codecs. */
#include "cli/words.h"
#include "cli/files.h"
#include "report/checkpoints/checkpoint_reports.h"

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct cli_common *common = args;
	const struct cli_list *asked = &common->operands;
	const struct tsr_codec *ignored;
	struct tsr_report r;

	for (unsigned i = 0; i < asked->n; i++)
		CLI_TRY(cli_parse_codec(cmd, asked->items[i], ~0u, &ignored));
	r = cli_report(cmd, common, NULL);
	tsr_codecs_report(asked->items, asked->n, &r);
	return cli_end_report(&r, common);
}

TSR_EMBED(help_codecs, "man/help/codecs.txt");

const struct cli_cmd cmd_codecs = {
	.name = "codecs",
	.summary = "list the codecs for weights, momenta and variances",
	.operands = "[CODEC...]",
	.help = help_codecs,
	.takes = CLI_REPORTS,
	.run = run,
};
