/* SPDX-License-Identifier: Apache-2.0 */
/* tersor audit --granularity: 8-bit floats by how many elements share a scale. */
#ifndef TSR_CLI_AUDIT_GRANULARITY_H
#define TSR_CLI_AUDIT_GRANULARITY_H

#include "cli/cli.h"

/*
 * Measure and report the tensors of @kinds (a mask; 0: all) of the operands.  @scale: how scales are stored,
 * as --scale has it; NULL: bf16.  Exit status: CLI_DIFFERS if a tensor could not be measured for its values.
 */
int cli_audit_granularity(const struct cli_cmd *cmd, const struct cli_common *common,
			  const char *scale, unsigned kinds);

#endif
