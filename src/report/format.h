/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names as tables show them to people. */
#ifndef TSR_REPORT_FORMAT_H
#define TSR_REPORT_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "tersor/codec.h"
#include "text/text.h"

/* Columns of tables and messages. */
#define TSR_COLUMNS 80

#define TSR_BYTES_ROOM 16
#define TSR_COUNT_ROOM 32
#define TSR_PERCENT_ROOM 16
#define TSR_CODING_ROOM 64
#define TSR_SHAPE_ROOM 64 /* for tsr_shape_text() */
#define TSR_NAME_ROOM 128

/* "1.23 GB"; at most 9 characters. */
void tsr_format_bytes(char out[TSR_BYTES_ROOM], double nbytes);

/* "84,288". */
void tsr_format_count(char out[TSR_COUNT_ROOM], uint64_t n);

/* "12.3456", and "100" or "0" only if exact; "-" of nothing. */
void tsr_format_percent(char out[TSR_PERCENT_ROOM], uint64_t part, uint64_t whole);

/* A name for a terminal: escaped, and with its middle left out if it is longer than @width. */
void tsr_format_name(char out[TSR_NAME_ROOM], const char *name, unsigned width);

/* All of a name, escaped, to be freed; if out of memory, NULL and @out has failed. */
char *tsr_escaped(struct tsr_text *out, const char *name);

/* "bf16+ulp8", with a scale "softsign8 e8m8/32", or "raw". */
void tsr_format_coding(char out[TSR_CODING_ROOM], const struct tsr_coding *coding);

/* The members of a JSON report that say how a tensor is stored: codec, scale, group, seed. */
void tsr_coding_put_json(const struct tsr_coding *coding, struct tsr_text *json);

/* Words wrapped at TSR_COLUMNS, from @column on; later lines are indented.  Ends in a newline. */
void tsr_put_wrapped(struct tsr_text *out, const char *words, unsigned column, unsigned indent);

#endif
