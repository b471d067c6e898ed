/* SPDX-License-Identifier: Apache-2.0 */
/* What unpack and convert share: they write a checkpoint that is not packed. */
#include "cli/unpacking.h"

#include "cli/output.h"
#include "cli/work.h"
#include "pack/packing.h"

static int report_json(const struct cli_cmd *cmd, const struct cli_common *common,
		       const struct cli_unpacking *how, const struct tsr_unpacking *u)
{
	struct tsr_text json = { 0 };

	cli_json_begin(&json, cmd);
	how->put(&json, common, u);
	cli_json_tensors(&json, u->source, NULL, NULL);
	return cli_json_end(&json, common);
}

int cli_unpack(const struct cli_cmd *cmd, const struct cli_common *common,
	       const struct cli_unpacking *how, const struct tsr_write_options *o)
{
	struct tsr_unpacking *u = NULL;
	struct tsr_err err = { 0 };
	enum tsr_status written;
	struct cli_work work;
	int status = CLI_OK;

	CLI_TRY(cli_work_open(&work, cmd, common, how->verb));
	written = how->write(common, o, &work.run, &u, &err);
	cli_work_end(&work);
	if (!u)
		return cli_error(&err);
	cli_warn_notes(common, u->source);
	if (cli_wants_text(common))
		how->print(common, u);
	if (common->json.given)
		status = report_json(cmd, common, how, u);
	tsr_unpacking_free(u);
	return written == TSR_OK ? status : cli_error(&err);
}
