/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs, outputs and reports of a command. */
#ifndef TSR_CLI_FILES_H
#define TSR_CLI_FILES_H

#include "ckpt/checkpoint_model.h"
#include "cli/cli.h"
#include "render/document.h"
#include "tersor/pack.h"

/* --- What the options about inputs and outputs mean ------------------------------------------ */

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

/* --- Reports: on standard output, or in files ------------------------------------------------ */

/* Whether the report for people is to be printed: not with -qq, nor with another on stdout. */
bool cli_wants_text(const struct cli_common *common);

/*
 * What is asked for of a report, of which JSON has begun: with "tersor.COMMAND.v1", or if @part is not NULL
 * "tersor.COMMAND-PART.v1", and as "inputs" the operands, if the command needs any.
 */
struct tsr_report cli_report(const struct cli_cmd *cmd, const struct cli_common *common,
			     const char *part);

/* Print the text, write the others to their files and free all; JSON is closed.  Exit status. */
int cli_end_report(struct tsr_report *r, const struct cli_common *common);

/* The files of the reports into @paths; returns how many. */
unsigned cli_report_paths(const struct cli_common *common, const char *paths[CLI_NREPORTS]);

/* Before long work: whether all reports can be written.  CLI_OK, or the status after a message. */
int cli_check_reports(const struct cli_common *common);

/* Print the report for people, its grades in colour where that is wanted.  Frees it.  Exit status. */
int cli_print_report(const struct cli_common *common, struct tsr_text *text);

/* Write a text to a file, or print it if @path is NULL.  Frees it.  Exit status. */
int cli_write_report(struct tsr_text *text, const char *path);

#endif
