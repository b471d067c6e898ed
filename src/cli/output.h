/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CLI_OUTPUT_H
#define TSR_CLI_OUTPUT_H

#include "text/text.h"
#include "cli/cli.h"
#include "tersor/checkpoint.h"

/* "1.23 GB"; at most 9 characters. */
void cli_format_bytes(char *out, size_t room, double nbytes);

/* "84,288". */
void cli_format_count(char *out, size_t room, uint64_t n);

/* "[144, 48]". */
void cli_format_shape(char *out, size_t room, unsigned rank, const uint64_t *shape);

/* A name for a terminal: escaped, and with its middle left out if it is longer than @width. */
void cli_format_name(char *out, size_t room, const char *name, unsigned width);

/* Whether the report for people is to be printed: not with -qq, nor with --json on stdout. */
bool cli_wants_text(const struct cli_common *common);

/* Begin a JSON object with its schema, "tersor.COMMAND.v1". */
void cli_json_begin(struct tsr_text *json, const struct cli_cmd *cmd);

/* End the object and print it or write it to the file of --json=FILE.  Frees it.  Exit status. */
int cli_json_end(struct tsr_text *json, const struct cli_common *common);

/*
 * Write a text to a file, or print it if @path is NULL.  Frees it.  Exit status.
 */
int cli_write_report(struct tsr_text *text, const char *path);

/* Whether cli_write_report() could write this file now; leaves nothing behind. */
enum tsr_status cli_check_report(const char *path, struct tsr_err *err);

/* Members that describe a tensor: name, kind, dtype, shape, codec, scale, group, seed. */
void cli_json_tensor(struct tsr_text *json, const struct tsr_tensor *t);

/* A member "error" with every metric and count of a measurement. */
void cli_json_measure(struct tsr_text *json, const struct tsr_measure *m);

#endif
