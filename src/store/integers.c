/* SPDX-License-Identifier: Apache-2.0 */
/* Small integers of a block of a matrix, entropy coded by how large those of their row and column are. */
#include "store/integers.h"

#include <string.h>

#include "base/little_endian.h"
#include "codec/math.h"

uint32_t tsr_block_rows(const struct tsr_block *b)
{
	uint64_t rows;

	if (b->columns < 2)
		return 0;
	rows = ((uint64_t)b->phase + b->n + b->columns - 1) / b->columns;
	return rows > 1 && rows + b->columns <= b->n / 8 ? (uint32_t)rows : 0;
}

/* --- Numbers of lines ------------------------------------------------------------------------- */

size_t tsr_line_numbers_put(struct tsr_integers *w, uint32_t nlines, uint8_t *to)
{
	const size_t nbytes = tsr_entropy_encode_symbols(w->e, NULL, w->lines, nlines, to + 4);

	tsr_put_le(to, nbytes, 4);
	return 4 + nbytes;
}

const char *tsr_line_numbers_get(struct tsr_integers *w, uint32_t nlines, const uint8_t *bytes,
				 size_t nbytes, size_t *used)
{
	uint64_t size;

	if (nbytes < 4)
		return "the numbers of its lines end early";
	size = tsr_get_le(bytes, 4);
	if (size > nbytes - 4)
		return "the numbers of its lines end early";
	*used = 4 + (size_t)size;
	return tsr_entropy_decode_symbols(w->e, NULL, bytes + 4, (size_t)size, w->lines, nlines);
}

/* --- Contexts --------------------------------------------------------------------------------- */

/* A magnitude in quarters of an octave: its bits are its logarithm, but for the form of the significand. */
static int32_t level(double mean)
{
	return (int32_t)(tsr_bits_from_f32((float)(mean < 0x1p-20 ? 0x1p-20 : mean)) >> 21);
}

static int8_t clamp_to_line(int32_t x)
{
	return (int8_t)(x < -127 ? -127 : x > 127 ? 127 : x);
}

/* How many elements of a block are in a row: the first and the last may be cut. */
static uint32_t row_elements(const struct tsr_block *b, uint32_t rows, uint32_t row)
{
	const uint64_t begin = row ? (uint64_t)row * b->columns - b->phase : 0;
	const uint64_t end = row + 1 < rows ? (uint64_t)(row + 1) * b->columns - b->phase : b->n;

	return (uint32_t)(end - begin);
}

/* How many elements of a block are in a column. */
static uint32_t column_elements(const struct tsr_block *b, uint32_t column)
{
	const uint32_t end = b->phase + b->n;

	return end / b->columns + (column < end % b->columns) - (column < b->phase);
}

/* A run of elements of one row: where it begins, in the block and in its row, and how many there are. */
static uint32_t find_run(const struct tsr_block *b, uint32_t row, uint32_t *first, uint32_t *column)
{
	const uint32_t left = b->n - *first;

	*column = row ? 0 : b->phase;
	return left < b->columns - *column ? left : b->columns - *column;
}

static void find_levels(struct tsr_integers *w, const struct tsr_block *b, uint32_t rows,
			const int32_t *k)
{
	static tsr_integer_sums_fn *const sums[] = TSR_ISA_VARIANTS(integer_sums);
	uint64_t *const row = w->sizes, *const columns = w->sizes + rows, all = 0;
	uint32_t first = 0, column, n;
	int32_t mean;

	memset(columns, 0, b->columns * sizeof(*columns));
	for (uint32_t r = 0; r < rows; r++, first += n) {
		n = find_run(b, r, &first, &column);
		row[r] = sums[tsr_isa_level()](k + first, n, columns + column);
		all += row[r];
	}
	mean = level((double)all / b->n);
	for (uint32_t r = 0; r < rows; r++)
		w->lines[r] = clamp_to_line(level((double)row[r] / row_elements(b, rows, r)) -
					    mean);
	for (uint32_t c = 0; c < b->columns; c++)
		w->lines[rows + c] = clamp_to_line(
			level((double)columns[c] / column_elements(b, c)) - mean);
}

static void fill_contexts(struct tsr_integers *w, const struct tsr_block *b, uint32_t rows)
{
	static tsr_integer_contexts_fn *const fill[] = TSR_ISA_VARIANTS(integer_contexts);
	const int32_t middle = TSR_ENTROPY_CONTEXTS / 2;
	uint32_t first = 0, column, n;

	for (uint32_t r = 0; r < rows; r++, first += n) {
		n = find_run(b, r, &first, &column);
		fill[tsr_isa_level()](w->lines + rows + column, n, middle + w->lines[r],
				      w->contexts + first);
	}
}

/* --- Integers --------------------------------------------------------------------------------- */

/* The symbol of each, and the integers that have none, to @to.  Returns how many these are. */
static uint32_t find_symbols(struct tsr_integers *w, const int32_t *k, size_t n, uint8_t *to)
{
	static tsr_integer_symbols_fn *const symbols[] = TSR_ISA_VARIANTS(integer_symbols);
	size_t others = symbols[tsr_isa_level()](k, n, w->symbols);
	uint32_t nescapes = 0;

	for (size_t i = 0; others && i < n; i++) {
		if (w->symbols[i] < TSR_SYMBOL_NONE)
			continue;
		others--;
		if (w->symbols[i] == TSR_SYMBOL_ESCAPE)
			tsr_put_le(to + 4 * (size_t)nescapes++, (uint32_t)k[i], 4);
	}
	return nescapes;
}

size_t tsr_integers_put(struct tsr_integers *w, const struct tsr_block *b, bool by_lines,
			const int32_t *k, uint8_t *to)
{
	const uint32_t rows = by_lines ? tsr_block_rows(b) : 0;
	const uint32_t nescapes = find_symbols(w, k, b->n, to + 8);
	size_t used = 8 + 4 * (size_t)nescapes;

	tsr_put_le(to, nescapes, 4);
	tsr_put_le(to + 4, rows != 0, 4);
	if (rows) {
		find_levels(w, b, rows, k);
		used += tsr_line_numbers_put(w, rows + b->columns, to + used);
		fill_contexts(w, b, rows);
	}
	return used + tsr_entropy_encode_symbols(w->e, rows ? w->contexts : NULL, w->symbols, b->n,
						 to + used);
}

/* What symbols stand for; escapes are taken in their order. */
static const char *get_values(const struct tsr_integers *w, const uint8_t *escapes,
			      uint32_t nescapes, size_t n, int32_t *k)
{
	for (size_t i = 0; i < n; i++) {
		const uint8_t symbol = w->symbols[i];

		if (symbol < TSR_SYMBOL_NONE) {
			k[i] = symbol & 1 ? -(int32_t)(symbol >> 1) - 1 : symbol >> 1;
		} else if (symbol == TSR_SYMBOL_NONE) {
			k[i] = TSR_INTEGER_NONE;
		} else if (symbol == TSR_SYMBOL_ESCAPE && nescapes) {
			k[i] = (int32_t)(uint32_t)tsr_get_le(escapes, 4);
			escapes += 4;
			nescapes--;
		} else {
			return "a symbol stands for nothing";
		}
	}
	return nescapes ? "there are more large integers than symbols for them" : NULL;
}

const char *tsr_integers_get(struct tsr_integers *w, const struct tsr_block *b,
			     const uint8_t *bytes, size_t nbytes, int32_t *k)
{
	uint64_t nescapes, by_lines;
	uint32_t rows = 0;
	size_t used, lines_nbytes;
	const char *wrong;

	if (nbytes < 8)
		return "its integers end early";
	nescapes = tsr_get_le(bytes, 4);
	by_lines = tsr_get_le(bytes + 4, 4);
	if (nescapes > b->n || 4 * nescapes > nbytes - 8)
		return "its integers end early";
	used = 8 + 4 * (size_t)nescapes;
	if (by_lines) {
		rows = tsr_block_rows(b);
		if (by_lines != 1 || !rows)
			return "it is coded by lines that it does not have";
		wrong = tsr_line_numbers_get(w, rows + b->columns, bytes + used, nbytes - used,
					     &lines_nbytes);
		if (wrong)
			return wrong;
		used += lines_nbytes;
		fill_contexts(w, b, rows);
	}
	wrong = tsr_entropy_decode_symbols(w->e, rows ? w->contexts : NULL, bytes + used,
					   nbytes - used, w->symbols, b->n);
	return wrong ? wrong : get_values(w, bytes + 8, (uint32_t)nescapes, b->n, k);
}
