/* SPDX-License-Identifier: Apache-2.0 */
/* What commands share that write one checkpoint from another: unpack, convert, apply and recoding. */
#ifndef TSR_CLI_UNPACKING_H
#define TSR_CLI_UNPACKING_H

#include "cli/cli.h"
#include "pack/packing.h"
#include "report/render/document.h"
#include "tersor/pack.h"

/* How a command does that; @options are those of its own. */
struct cli_unpacking {
	const char *verb; /* "unpacking" */
	enum tsr_status (*write)(const struct cli_common *common, const void *options,
				 const struct tsr_run *run, struct tsr_unpacking **ret,
				 struct tsr_err *err);
	const char *shown; /* what -v shows of tensors; NULL: nothing */
	/* Lines of text, and the members of the JSON report before "tensors". */
	void (*report)(struct tsr_report *r, const struct cli_common *common,
		       const struct tsr_unpacking *u);
	/* What is wrong with the outcome: an exit status after a message.  NULL: nothing. */
	int (*check)(const struct cli_common *common, const void *options,
		     const struct tsr_unpacking *u);
};

/* Write the output and report.  Exit status. */
int cli_unpack(const struct cli_cmd *cmd, const struct cli_common *common,
	       const struct cli_unpacking *how, const void *options);

#endif
