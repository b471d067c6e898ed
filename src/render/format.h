/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names as tables show them to people. */
#ifndef TSR_RENDER_FORMAT_H
#define TSR_RENDER_FORMAT_H

/* What every report needs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "tersor/codec.h"
#include "text/json.h"

/* Columns of tables and messages. */
#define TSR_COLUMNS 80

/*
 * A text for a table, used where it is made: printf("%s", tsr_format_bytes(n).text).  It lives until
 * the end of that expression.
 */
struct tsr_cell {
	char text[128];
};

/* "1.23 GB"; at most 9 characters. */
struct tsr_cell tsr_format_bytes(double nbytes);

/*
 * A largest distance in ULP; "at zero" from 2^28 on, where the signs differ or one value is less than a
 * 2^32th of the other, so that the number says nothing about either.
 */
struct tsr_cell tsr_format_ulp(double ulp);

/* "84,288". */
struct tsr_cell tsr_format_count(uint64_t n);

/* "1 tensor", "3 tensors". */
struct tsr_cell tsr_format_number(uint64_t n, const char *one);

/* A name for a terminal: escaped, and with its middle left out if it is longer than @width. */
struct tsr_cell tsr_format_name(const char *name, unsigned width);

/* All of a name, escaped, to be freed; if out of memory, NULL and @out has failed. */
char *tsr_escaped(struct tsr_text *out, const char *name);

/* The same as a field of CSV, quoted if necessary. */
void tsr_csv_put_name(const char *name, struct tsr_text *csv);

/* "[2, 3]"; at most 63 characters. */
struct tsr_cell tsr_format_shape(unsigned rank, const uint64_t *shape);

/* "bf16+ulp8", with a scale "softsign8 e8m8/32", or "raw". */
struct tsr_cell tsr_format_coding(const struct tsr_coding *coding);

/*
 * Words of a paragraph, which an empty line ends, wrapped at TSR_COLUMNS, from @column on; later lines are
 * indented.  Ends in a newline.
 */
void tsr_put_wrapped(struct tsr_text *out, const char *words, unsigned column, unsigned indent);

#endif
