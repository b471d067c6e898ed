/* SPDX-License-Identifier: Apache-2.0 */
/* What the options of `tersor replay` mean. */
#ifndef TSR_CLI_REPLAY_OPTIONS_H
#define TSR_CLI_REPLAY_OPTIONS_H

#include "cli/codec_words.h"
#include "tersor/replay.h"

/* The arguments of `tersor replay`. */
struct cli_replay_args {
	struct cli_common common;
	const char *to;
	const char *optimizer, *lr, *schedule, *betas, *eps, *weight_decay;
	bool nesterov, decouple_lr;
	struct cli_list hyper;
	const char *state, *codec[TSR_SLOTS], *scale, *compat;
	uint64_t group, seed;
	const char *steps, *count, *on_nonfinite, *on_missing, *compare;
	bool zero_state, check_numerics, audit;
	struct cli_learning learning; /* without `compat` */
	const char *state_on_disk;
	struct cli_list max_error, map;
};

/* What they mean; strings are the arguments'. */
struct cli_replay_parsed {
	struct tsr_replay_options options; /* `reports` is not set */
	struct tsr_gate gates[CLI_BOUNDS_MAX];
	struct tsr_name_rule rules[CLI_RULES_MAX];
	struct tsr_learn_options learn;
	/* With several states, else 0 of them; their names are in `words`. */
	unsigned nforms;
	struct tsr_replay_form forms[TSR_REPLAY_FORMS_MAX];
	char words[200];
};

/* CLI_OK, or the exit status after a message.  Splits the strings of --map in place. */
int cli_replay_parse(const struct cli_cmd *cmd, const struct cli_replay_args *a,
		     struct cli_replay_parsed *ret);

#endif
