/* SPDX-License-Identifier: Apache-2.0 */
/* What commands share that write one checkpoint from another: unpack, convert, apply and recoding. */
#ifndef TSR_CLI_UNPACKING_H
#define TSR_CLI_UNPACKING_H

#include "cli/work.h"
#include "pack/packing.h"
#include "report/render/document.h"
#include "tersor/pack.h"

/* How a command does that; @options are those of its own. */
struct cli_unpacking {
	const char *shown; /* what -v shows of tensors; NULL: nothing */
	/* Lines of text, and the members of the JSON report before "tensors". */
	void (*report)(struct tsr_report *r, const struct cli_common *common,
		       const struct tsr_unpacking *u);
	/* What is wrong with the outcome: an exit status after a message.  NULL: nothing. */
	int (*check)(const struct cli_common *common, const void *options,
		     const struct tsr_unpacking *u);
};

/* Report what came of the work, which has not ended; @u, which may be NULL, is freed.  Exit status. */
int cli_end_unpacking(const struct cli_cmd *cmd, const struct cli_common *common,
		      const struct cli_unpacking *how, const void *options, struct cli_work *work,
		      enum tsr_status written, struct tsr_unpacking *u);

#endif
