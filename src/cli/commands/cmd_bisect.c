/* SPDX-License-Identifier: Apache-2.0 */
/* tersor bisect: the first step and tensor at which two runs differ. */

#include "cli/files.h"
#include "cli/operations.h"
#include "report/reports.h"

struct args {
	struct cli_common common;
	const char *from;
};

#define AT(field) offsetof(struct args, field)

static const struct cli_opt opts[] = { CLI_OPT("from", "CKPT", CLI_STRING, from, "@file"), { 0 } };

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	const struct cli_common *common = &a->common;
	const char *const *in = common->operands.items;
	struct tsr_bisect_options o = tsr_bisect_defaults();
	TSR_OWNED(tsr_bisect_free) struct tsr_bisect *b = NULL;
	struct tsr_report report;
	struct cli_work work;

	o.open = &common->open;
	o.from = a->from;
	CLI_TRY(cli_check_reports(common));
	cli_work_start(&work, common, "comparing");
	if (cli_work_end(&work, tsr_bisect(in[0], in[1], &o, &work.run, &b, &work.err)) != TSR_OK)
		return cli_error(&work.err);
	for (unsigned i = 0; i < 2; i++) {
		if (b->side[i].torn_nbytes)
			cli_warn(common,
				 "%s: the step after %" PRIu64
				 " was not written to its end: left out",
				 b->side[i].path, b->side[i].last_step);
		if (b->side[i].nfiles < b->side[i].nranks)
			cli_warn(common, "%s: has %" PRIu64 " of %" PRIu64 " ranks",
				 b->side[i].path, b->side[i].nfiles, b->side[i].nranks);
	}
	if (b->from)
		cli_warn_notes(common, b->from);
	report = cli_report(cmd, common, NULL);
	tsr_bisect_report(b, &report);
	report.differs = b->cause != TSR_BISECT_EQUAL;
	return cli_end_report(&report, common);
}

TSR_EMBED(help_bisect, "man/help/bisect.txt");

const struct cli_cmd cmd_bisect = {
	.name = "bisect",
	.summary = "find the first step and tensor at which two runs differ",
	.operands = "A B",
	.help = help_bisect,
	.opts = opts,
	.args_nbytes = sizeof(struct args),
	.takes = CLI_READS | CLI_DRAWS | CLI_WORKS | CLI_REPORTS,
	.run = run,
};
