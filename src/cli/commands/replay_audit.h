/* SPDX-License-Identifier: Apache-2.0 */
/* tersor replay --audit: what each codec would do to the state after every step in FP32. */
#ifndef TSR_CLI_REPLAY_AUDIT_H
#define TSR_CLI_REPLAY_AUDIT_H

#include "cli/replay_options.h"

/* Replay in FP32 on the CPU and audit momenta and variances after each step.  Returns the exit status. */
int cli_replay_audit(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		     struct tsr_replay_options *o);

#endif
