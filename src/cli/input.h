/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CLI_INPUT_H
#define TSR_CLI_INPUT_H

#include "cli/cli.h"
#include "tersor/pack.h"

/* Options of every command that reads checkpoints; a member `input` of its arguments. */
struct cli_input {
	bool follow;
	const char *as, *params;
};

#define CLI_INPUT_OPTS(args) \
	{ "follow-symlinks", \
	  0, \
	  NULL, \
	  CLI_FLAG, \
	  offsetof(args, input.follow), \
	  0, \
	  0, \
	  NULL, \
	  "open shards that are symbolic links" }, \
		{ "as", \
		  0, \
		  "DTYPE", \
		  CLI_STRING, \
		  offsetof(args, input.as), \
		  0, \
		  0, \
		  "bf16 f16 f8_e4m3 f8_e5m2", \
		  "what .npy elements without a type are: bf16, f8_e4m3, ..." }, \
	{ \
		"params", 0, "FILE", CLI_STRING, offsetof(args, input.params), 0, 0, "@file", \
			"names of parameters, one per line, in the order of the optimizer's " \
			"numbers" \
	}

/* What they ask for.  Free with cli_input_free(). */
struct cli_inputs {
	struct tsr_open_options open;
	char *text; /* of the file of --params */
	const char **names;
};

/* CLI_OK, or the exit status after a message. */
int cli_parse_input(const struct cli_cmd *cmd, const struct cli_input *input,
		    struct cli_inputs *ret);
void cli_input_free(struct cli_inputs *inputs);

/* --to, or else the extension of @out, into @o; TSR_CONTAINER_COUNT if neither tells. */
int cli_parse_container(const struct cli_cmd *cmd, const char *to, const char *out,
			struct tsr_write_options *o);

/* What a user should know of a checkpoint, as warnings. */
void cli_warn_notes(const struct cli_common *common, const struct tsr_checkpoint *c);

#endif
