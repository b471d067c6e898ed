/* SPDX-License-Identifier: Apache-2.0 */
/* What pack says when it packed nothing: why, and what to do. */
#include "cli/operations.h"

#include "report/checkpoints/directory_report.h"

int cli_nothing_packed(const struct cli_common *common, bool strict,
		       const struct tsr_kept_raw *kept, const struct tsr_directory *d)
{
	const char *path = common->operands.items[0];
	struct tsr_text why = { 0 };
	int status = CLI_OK;

	tsr_nothing_packed_put_why(kept, d, &why);
	if (strict)
		status = cli_fail(CLI_DIFFERS, "%s: nothing was packed: %s", path,
				  why.bytes ? why.bytes : "?");
	else
		cli_warn(common, "%s: nothing was packed: %s", path, why.bytes ? why.bytes : "?");
	tsr_text_free(&why);
	return status;
}

int cli_check_packed(const struct cli_common *common, const struct tsr_pack_options *o,
		     const struct tsr_packing *p, const struct tsr_kept_raw *kept)
{
	const bool coded = o->coded != TSR_CODED_NONE &&
			   (o->dry_run || tsr_packing_nbytes(p) < tsr_packing_plain_nbytes(p));

	if (kept->packed_nbytes || coded)
		return CLI_OK;
	return cli_nothing_packed(common, o->strict, kept, NULL);
}
