/* SPDX-License-Identifier: Apache-2.0 */
/* What the options about inputs and outputs mean. */
#ifndef TSR_CLI_INPUT_H
#define TSR_CLI_INPUT_H

#include "ckpt/checkpoint_model.h"
#include "cli/cli.h"
#include "tersor/pack.h"

/* What common->open points to.  Free with cli_input_free(). */
struct cli_input {
	char *text; /* of the file of --params */
	const char **names;
	struct tsr_checkpoint *model; /* of --params-from */
};

/* A dtype by its name, in any case. */
int cli_parse_dtype(const struct cli_cmd *cmd, const char *name, enum tsr_dtype *ret);

/* The options of CLI_READS into common->open.  CLI_OK, or the exit status after a message. */
int cli_parse_input(const struct cli_cmd *cmd, struct cli_common *common, struct cli_input *ret);
void cli_input_free(struct cli_input *input);

/*
 * The options of CLI_WRITES and CLI_READS, and --to (NULL: by the extension of the output).  The
 * container is TSR_CONTAINER_COUNT if neither names one.
 */
struct tsr_write_options cli_write_options(const struct cli_common *common, const char *to);

/* What a user should know about a checkpoint, as warnings. */
void cli_warn_notes(const struct cli_common *common, const struct tsr_checkpoint *c);

#endif
