/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CLI_REPLAY_OPTIONS_H
#define TSR_CLI_REPLAY_OPTIONS_H

#include "cli/cli.h"
#include "cli/input.h"
#include "tersor/replay.h"

/* The arguments of `tersor replay`. */
struct cli_replay_args {
	struct cli_common common;
	struct cli_input input;
	const char *output, *to, *device;
	const char *optimizer, *lr, *schedule, *betas, *eps, *weight_decay;
	bool nesterov, decouple_lr;
	struct cli_list hyper;
	const char *state, *codec[TSR_PARTS], *scale, *compat;
	uint64_t group, seed, max_shard;
	const char *steps, *count, *on_nonfinite, *on_missing, *compare;
	bool zero_state, check_numerics, force, dry_run;
	struct cli_list gate, map;
	struct cli_optional csv;
	const char *svg, *html;
};

#define CLI_REPLAY_GATES_MAX 32
#define CLI_REPLAY_RULES_MAX 64

/* What they mean; strings are the arguments'. */
struct cli_replay_parsed {
	struct tsr_replay_options options; /* `open` and `reports` are not set */
	struct tsr_gate gates[CLI_REPLAY_GATES_MAX];
	struct tsr_name_rule rules[CLI_REPLAY_RULES_MAX];
	const char *reports[4]; /* files */
};

/* CLI_OK, or the exit status after a message.  Splits the strings of --map in place. */
int cli_replay_parse(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		     struct cli_replay_parsed *ret);

#endif
