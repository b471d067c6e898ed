/* SPDX-License-Identifier: Apache-2.0 */
/* Where elements of a piece are in its matrix and its groups, for C and for CUDA. */
#ifndef TSR_ENTROPY_CONTEXTS_MATH_H
#define TSR_ENTROPY_CONTEXTS_MATH_H

#include "entropy/entropy.h"
#include "entropy/rans_math.h"

/* The rows that a piece of @n variances touches. */
TSR_HD uint64_t tsr_contexts_rows(const struct tsr_entropy_variance *v, uint64_t n)
{
	return (v->first % v->columns + n - 1) / v->columns + 1;
}

/* Whether a piece may have contexts: the means of lines must be fewer than elements by far. */
TSR_HD bool tsr_contexts_are_possible(const struct tsr_entropy_variance *v, uint64_t n)
{
	if (!v->scales.scales || !n)
		return false;
	return v->columns && v->columns <= n && 8 * (tsr_contexts_rows(v, n) + v->columns) <= n;
}

/* The elements of a piece in row or column @i of it: its first and its last row may be parts. */
TSR_HD uint32_t tsr_contexts_row_size(const struct tsr_entropy_variance *v, uint64_t n,
				      uint64_t nrows, uint64_t i)
{
	const uint64_t before = v->first % v->columns, end = before + n;

	return (uint32_t)((i + 1 == nrows ? end - i * v->columns : v->columns) - (i ? 0 : before));
}

TSR_HD uint32_t tsr_contexts_column_size(const struct tsr_entropy_variance *v, uint64_t n,
					 uint64_t nrows, uint64_t i)
{
	const uint64_t before = v->first % v->columns, last = (before + n - 1) % v->columns;

	return (uint32_t)(nrows - (i < before) - (i > last));
}

/* The place among the scales of a piece of that of its element @i. */
TSR_HD uint64_t tsr_entropy_scale_of(const struct tsr_entropy_scales *s, uint64_t first, uint64_t i)
{
	const uint64_t row = s->row, in_row = first % (row ? row : s->group), at = in_row + i;

	if (!row)
		return at / s->group;
	return at / row * ((row + s->group - 1) / s->group) + at % row / s->group -
	       in_row / s->group;
}

/* The part of a scale of `log8` that contexts depend on: exponent, leading mantissa bits, range. */
TSR_HD uint16_t tsr_entropy_log_scale(uint32_t f28)
{
	return (uint16_t)((f28 >> 19 & 0xfff) << 4 | (f28 & 15));
}

/* The bytes of stored means. */
TSR_HD uint32_t tsr_contexts_means_nbytes(uint32_t nrows, uint32_t ncolumns)
{
	return (4 + nrows + ncolumns + 3) / 4 * 4;
}

#endif
