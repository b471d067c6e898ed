/* SPDX-License-Identifier: Apache-2.0 */
/* What commands share that write one checkpoint from another: unpack, convert, apply and recoding. */
#include "cli/operations.h"

#include "cli/files.h"

int cli_end_unpacking(const struct cli_cmd *cmd, const struct cli_common *common,
		      const struct cli_unpacking *how, const void *options, struct cli_work *work,
		      enum tsr_status written, struct tsr_unpacking *u)
{
	const bool listed = common->verbose && how->shown;
	struct tsr_table t = { 0 };
	struct tsr_report r;
	int status;

	cli_work_end(work, written);
	if (!u)
		return cli_error(&work->err);
	cli_warn_notes(common, u->source);
	r = cli_report(cmd, common, NULL);
	r.differs = how->check && how->check(common, options, u) != CLI_OK;
	for (size_t i = 0; (r.wants_json || listed) && i < u->source->ntensors; i++)
		cli_put_tensor(&t, &u->source->tensors[i]);
	if (listed)
		tsr_report_lines(&r, &t, how->shown);
	how->report(&r, common, u);
	tsr_report_rows(&r, t, "tensors", NULL);
	status = cli_end_report(&r, common);
	tsr_unpacking_free(u);
	return written == TSR_OK ? status : cli_error(&work->err);
}
