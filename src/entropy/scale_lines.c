/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of scales, coded by how they differ from what the means of their rows and columns let expect
 * (docs/internals/format.md, "Lines of scales").
 */
#include <string.h>

#include "base/little_endian.h"
#include "entropy/lines_math.h"
#include "entropy/segments.h"

#define HEAD 4u

/* --- Numbers ------------------------------------------------------------------------------------ */

static void load(const uint8_t *scales, unsigned width, size_t n, uint32_t *numbers)
{
	if (width == 4) {
		memcpy(numbers, scales, 4 * n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		uint16_t number;

		memcpy(&number, scales + 2 * i, 2);
		numbers[i] = number;
	}
}

static void store(const uint32_t *numbers, unsigned width, size_t n, uint8_t *scales)
{
	if (width == 4) {
		memcpy(scales, numbers, 4 * n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const uint16_t number = (uint16_t)numbers[i];

		memcpy(scales + 2 * i, &number, 2);
	}
}

/* --- Lines -------------------------------------------------------------------------------------- */

/* The scales of row @row of a piece, which may be a part of it: how many, and their first column. */
static size_t row_size(const struct tsr_entropy_grid *g, size_t n, size_t at, size_t *column_ret)
{
	const size_t column = (size_t)((g->first + at) % g->columns);
	const size_t left = (size_t)g->columns - column;

	*column_ret = column;
	return left < n - at ? left : n - at;
}

/* The levels of each row and column: their sums. */
static void add_up(const struct tsr_entropy_grid *g, const uint32_t *numbers, unsigned width,
		   size_t n, struct tsr_contexts_means *m)
{
	uint32_t *const columns = m->column_sums;
	uint32_t *row = m->row_sums;

	memset(columns, 0, m->ncolumns * sizeof(*columns));
	for (size_t at = 0, size, column; at < n; at += size) {
		uint32_t in_row = 0;

		size = row_size(g, n, at, &column);
		for (size_t k = 0; k < size; k++) {
			const uint32_t level = tsr_rans_line_level(numbers[at + k], width);

			in_row += level;
			columns[column + k] += level;
		}
		*row++ = in_row;
	}
}

static int8_t mean_of(uint32_t sum, uint32_t n, int32_t all)
{
	return (int8_t)tsr_rans_line_deviation((int32_t)(sum / n), all);
}

static void find_means(const struct tsr_entropy_grid *g, const uint32_t *numbers, unsigned width,
		       size_t n, struct tsr_contexts_means *m)
{
	const struct tsr_entropy_beside b = tsr_lines_of(g);
	uint64_t sum = 0;

	m->nrows = (uint32_t)tsr_contexts_rows(&b, n);
	m->ncolumns = (uint32_t)g->columns;
	add_up(g, numbers, width, n, m);
	for (uint32_t i = 0; i < m->nrows; i++)
		sum += m->row_sums[i];
	m->all = (int32_t)(sum / n);
	for (uint32_t i = 0; i < m->nrows; i++)
		m->rows[i] = mean_of(m->row_sums[i], tsr_contexts_row_size(&b, n, m->nrows, i),
				     m->all);
	for (uint32_t i = 0; i < m->ncolumns; i++)
		m->columns[i] = mean_of(m->column_sums[i],
					tsr_contexts_column_size(&b, n, m->nrows, i), m->all);
}

/* Take what is expected away from scales; or, with a @sign of -1, add it to their rests. */
static void subtract(const struct tsr_entropy_grid *g, const struct tsr_contexts_means *m,
		     unsigned width, size_t n, uint32_t sign, uint32_t *numbers)
{
	const int8_t *row = m->rows;

	for (size_t at = 0, size, column; at < n; at += size, row++) {
		uint32_t *const to = numbers + at;

		size = row_size(g, n, at, &column);
		for (size_t k = 0; k < size; k++)
			to[k] -= sign * tsr_rans_line_expected(m->all + 16 * *row,
							       m->columns[column + k], width);
	}
}

/* --- Pieces ------------------------------------------------------------------------------------- */

/* The piece by its lines. */
static size_t put_lines(struct tsr_entropy *e, const struct tsr_entropy_grid *g, unsigned width,
			const uint8_t *scales, size_t n, uint8_t *to)
{
	const struct tsr_entropy_kind kind = { .width = width };
	uint8_t *const rests = (uint8_t *)(e->differences + TSR_LINES_MAX);
	size_t nbytes;

	load(scales, width, n, e->differences);
	find_means(g, e->differences, width, n, &e->means);
	subtract(g, &e->means, width, n, 1, e->differences);
	store(e->differences, width, n, rests);
	nbytes = tsr_contexts_put_means(&e->means, to + HEAD);
	nbytes += tsr_entropy_encode(e, kind, rests, n, to + HEAD + nbytes);
	tsr_put_le(to, (uint64_t)nbytes << 8 | TSR_ENTROPY_LINES, HEAD);
	return HEAD + nbytes;
}

size_t tsr_entropy_encode_scales(struct tsr_entropy *e, const struct tsr_entropy_grid *g,
				 unsigned width, const void *scales, size_t n, void *coded)
{
	const struct tsr_entropy_kind kind = { .width = width };
	uint8_t *const lines = (uint8_t *)e->expected;
	size_t nbytes, lines_nbytes;

	if (!tsr_lines_are_possible(g, n))
		return tsr_entropy_encode(e, kind, scales, n, coded);
	lines_nbytes = put_lines(e, g, width, scales, n, lines);
	nbytes = tsr_entropy_encode(e, kind, scales, n, coded);
	if (lines_nbytes >= nbytes)
		return nbytes;
	memcpy(coded, lines, lines_nbytes);
	return lines_nbytes;
}

const char *tsr_entropy_decode_scales(struct tsr_entropy *e, const struct tsr_entropy_grid *g,
				      unsigned width, const void *coded, size_t nbytes,
				      void *scales, size_t n)
{
	const struct tsr_entropy_kind kind = { .width = width };
	const struct tsr_entropy_beside b = tsr_lines_of(g);
	const uint8_t *const head = coded;
	const char *wrong;
	size_t used;

	if (!nbytes || head[0] != TSR_ENTROPY_LINES)
		return tsr_entropy_decode(e, kind, coded, nbytes, scales, n);
	if (!tsr_lines_are_possible(g, n))
		return "has lines, which it cannot have";
	if (nbytes < HEAD || tsr_get_le(head + 1, 3) != nbytes - HEAD)
		return "its lines have another size";
	wrong = tsr_contexts_get_means(&b, n, head + HEAD, nbytes - HEAD, &e->means, &used);
	if (!wrong)
		wrong = tsr_entropy_decode(e, kind, head + HEAD + used, nbytes - HEAD - used,
					   scales, n);
	if (wrong)
		return wrong;
	load(scales, width, n, e->differences);
	subtract(g, &e->means, width, n, UINT32_MAX, e->differences);
	store(e->differences, width, n, scales);
	return NULL;
}
