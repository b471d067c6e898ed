/* SPDX-License-Identifier: Apache-2.0 */
/* Small integers of a block of a matrix, entropy coded by how large those of their row and column are. */
#ifndef TSR_STORE_INTEGERS_H
#define TSR_STORE_INTEGERS_H

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

/* What stands for no number. */
#define TSR_INTEGER_NONE INT32_MIN

/* Memory that coding needs; its contents do not matter.  @e is for elements of 4 bytes. */
struct tsr_integers {
	struct tsr_entropy *e;
	uint8_t symbols[TSR_STORE_BLOCK], contexts[TSR_STORE_BLOCK];
	int8_t lines[TSR_STORE_LINES]; /* of rows, then of columns */
	double sums[TSR_STORE_LINES];
};

/* The most bytes of @n integers. */
size_t tsr_integers_bound(size_t n);

/*
 * Code the integers of a block to @to, which has room for tsr_integers_bound(); a multiple of 4 bytes.  With
 * @by_lines the tables depend on the mean magnitude of the row and the column (store.md, "Integers").
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

#endif
