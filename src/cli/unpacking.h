/* SPDX-License-Identifier: Apache-2.0 */
/* What unpack and convert share: they write a checkpoint that is not packed. */
#ifndef TSR_CLI_UNPACKING_H
#define TSR_CLI_UNPACKING_H

#include "cli/input.h"
#include "text/text.h"

/* What the two differ in. */
struct cli_unpacking {
	const char *verb; /* "unpacking" */
	enum tsr_status (*write)(const struct cli_common *common, const struct tsr_write_options *o,
				 const struct tsr_run *run, struct tsr_unpacking **ret,
				 struct tsr_err *err);
	void (*print)(const struct cli_common *common, const struct tsr_unpacking *u);
	/* The members of the JSON report before "tensors". */
	void (*put)(struct tsr_text *json, const struct cli_common *common,
		    const struct tsr_unpacking *u);
};

/* Write and report.  Exit status. */
int cli_unpack(const struct cli_cmd *cmd, const struct cli_common *common,
	       const struct cli_unpacking *how, const struct tsr_write_options *o);

#endif
