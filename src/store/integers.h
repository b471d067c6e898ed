/* SPDX-License-Identifier: Apache-2.0 */
/* Small integers of a block of a matrix, entropy coded by how large those of their row and column are. */
#ifndef TSR_STORE_INTEGERS_H
#define TSR_STORE_INTEGERS_H

#include "base/isa.h"
#include "entropy/entropy.h"

/* The most elements of a block: what one coded stream can have. */
#define TSR_STORE_BLOCK TSR_ENTROPY_PIECE

/* Rows and columns of a block together, if it is coded by them. */
#define TSR_STORE_LINES (TSR_STORE_BLOCK / 8)

/* A block: @n consecutive elements of rows of @columns, the first in column @phase.  0 columns: no rows. */
struct tsr_block {
	uint32_t n, columns, phase;
};

/* The rows that a block touches; 0 if they and the columns are too many to say something of each. */
uint32_t tsr_block_rows(const struct tsr_block *b);

/* Symbols: 0, -1, 1, -2 ... up to 126, then these: no number (TSR_INTEGER_NONE), and a larger one. */
#define TSR_SYMBOL_NONE 253u
#define TSR_SYMBOL_ESCAPE 254u

#define TSR_INTEGER_NONE INT32_MIN

/* Memory that coding needs; its contents do not matter.  @e is for elements of 4 bytes. */
struct tsr_integers {
	struct tsr_entropy *e;
	uint8_t symbols[TSR_STORE_BLOCK], contexts[TSR_STORE_BLOCK];
	int8_t lines[TSR_STORE_LINES]; /* of rows, then of columns */
	double sums[TSR_STORE_LINES];
	uint64_t sizes[TSR_STORE_LINES];
};

/*
 * Code the integers of a block to @to; a multiple of 4 bytes.  With @by_lines the tables depend on the mean
 * magnitude of the row and the column (store.md, "Integers").  @to has room for 16 bytes, 4 for each integer,
 * and the tsr_entropy_bound() of as many symbols and of TSR_STORE_LINES, each a byte.
 */
size_t tsr_integers_put(struct tsr_integers *w, const struct tsr_block *b, bool by_lines,
			const int32_t *k, uint8_t *to);

/* Decode exactly @nbytes, which may be anything.  NULL, or what is wrong with them. */
const char *tsr_integers_get(struct tsr_integers *w, const struct tsr_block *b,
			     const uint8_t *bytes, size_t nbytes, int32_t *k);

/* @nlines numbers of @w->lines, coded to @to behind their size; a multiple of 4 bytes. */
size_t tsr_line_numbers_put(struct tsr_integers *w, uint32_t nlines, uint8_t *to);
const char *tsr_line_numbers_get(struct tsr_integers *w, uint32_t nlines, const uint8_t *bytes,
				 size_t nbytes, size_t *used);

/*
 * The loops, of which the first returns how many integers have no symbol of their own; the second adds the
 * magnitudes of a run of a row to those of columns, and returns their sum; the third fills the contexts of a
 * run: @row and the number of the column, within what contexts there are.
 */
typedef size_t tsr_integer_symbols_fn(const int32_t *k, size_t n, uint8_t *symbols);
typedef uint64_t tsr_integer_sums_fn(const int32_t *k, size_t n, uint64_t *columns);
typedef void tsr_integer_contexts_fn(const int8_t *columns, size_t n, int32_t row,
				     uint8_t *contexts);
TSR_ISA_DECLARE(tsr_integer_symbols_fn, integer_symbols)
TSR_ISA_DECLARE(tsr_integer_sums_fn, integer_sums)
TSR_ISA_DECLARE(tsr_integer_contexts_fn, integer_contexts)

#endif
