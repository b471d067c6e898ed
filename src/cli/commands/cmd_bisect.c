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

static const struct cli_opt opts[] = {
	CLI_OPT("from", "CKPT", CLI_STRING, from, "@file",
		"a checkpoint from before the first difference: replay the gradients that A or B "
		"has from there, and say whose results they give"),
	{ 0 }
};

static int run(const struct cli_cmd *cmd, void *args)
{
	const struct args *a = args;
	const struct cli_common *common = &a->common;
	const char *const *in = common->operands.items;
	struct tsr_bisect_options o = tsr_bisect_defaults();
	struct tsr_bisect *b = NULL;
	struct tsr_report report;
	struct cli_work work;
	int status;

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
	report = cli_report(cmd, common, NULL);
	tsr_bisect_report(b, &report);
	report.differs = b->cause != TSR_BISECT_EQUAL;
	status = cli_end_report(&report, common);
	tsr_bisect_free(b);
	return status;
}

const struct cli_cmd cmd_bisect = {
	.name = "bisect",
	.summary = "find the first step and tensor at which two runs differ",
	.operands = "A B",
	.details =
		"Compares two runs by the bits of their tensors, step by step, and names what is "
		"first to differ: the loaded state, hyperparameters, a gradient, or what the "
		"optimizer made of the same gradient and state. A and B are each a directory of "
		"signatures that tersor.signatures recorded or a file of them, a recording of "
		"gradients, a checkpoint, or a directory of checkpoints whose names end in the "
		"number of their step. Steps that only one of them has are left out. Exits 1 if "
		"the runs differ.",
	.examples = "  tersor bisect run-a run-b\n"
		    "  tersor bisect run-a run-b --from checkpoint.pt\n"
		    "  tersor bisect run-a checkpoint.pt --html report.html\n",
	.opts = opts,
	.args_nbytes = sizeof(struct args),
	.takes = CLI_READS | CLI_DRAWS | CLI_WORKS | CLI_REPORTS,
	.run = run,
};
