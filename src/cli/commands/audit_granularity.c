/* SPDX-License-Identifier: Apache-2.0 */
/* tersor audit --granularity: 8-bit floats by how many elements share a scale. */
#include "cli/operations.h"

#include "cli/files.h"
#include "report/reports.h"

int cli_audit_granularity(const struct cli_cmd *cmd, const struct cli_common *common,
			  const char *scale, unsigned kinds)
{
	const struct cli_list *in = &common->operands;
	struct tsr_granularity_options o = tsr_granularity_defaults();
	TSR_OWNED(tsr_granularities_free) struct tsr_granularities *g = NULL;
	struct tsr_granularity_figures f;
	struct tsr_report r;
	struct cli_work work;

	o.kinds = kinds;
	o.open = &common->open;
	if (scale && !tsr_granularity_scale_find(scale, &o.scale))
		return cli_usage(cmd,
				 "option --scale: found '%s', expected bf16, f32 or coat with "
				 "--granularity",
				 scale);
	CLI_TRY(cli_check_reports(common));
	cli_work_start(&work, common, "measuring");
	if (cli_work_end(&work, tsr_granularity_measure(in->items, in->n, &o, &work.run, &g,
							&work.err)) != TSR_OK)
		return cli_error(&work.err);
	cli_warn_notes(common, tsr_granularities_checkpoint(g));
	if (!tsr_granularity_figures_of(g, &f))
		return cli_fail(CLI_IO, "out of memory for the report");
	r = cli_report(cmd, common, "granularity");
	r.differs = f.nnonfinite;
	tsr_granularity_report(g, &f, o.scale, &r);
	return cli_end_report(&r, common);
}
