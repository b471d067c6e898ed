/* SPDX-License-Identifier: Apache-2.0 */
/* What commands share that write one checkpoint from another: unpack, convert, apply and recoding. */
#include "cli/operations.h"

#include "cli/files.h"

int cli_end_unpacking(const struct cli_cmd *cmd, const struct cli_common *common,
		      const struct cli_unpacking *done)
{
	const bool listed = common->verbose && done->shown;
	struct tsr_unpacking *u = done->u;
	struct tsr_table t = { 0 };
	struct tsr_report r;
	int status;

	if (!u)
		return cli_error(done->err);
	cli_warn_notes(common, u->source);
	r = cli_report(cmd, common, NULL);
	r.output = done->output ? done->output : r.output;
	r.differs = done->differs;
	for (size_t i = 0; (r.wants_json || listed) && i < u->source->ntensors; i++)
		tsr_tensor_put(&t, &u->source->tensors[i]);
	if (listed)
		tsr_report_lines(&r, &t, done->shown);
	done->report(&r, u);
	tsr_report_rows(&r, t, "tensors", NULL);
	status = cli_end_report(&r, common);
	tsr_unpacking_free(u);
	return done->written == TSR_OK ? status : cli_error(done->err);
}
