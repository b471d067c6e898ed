/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of contexts: runs of elements of one row that share their scales. */
#include "entropy/contexts.h"
#include "entropy/rans_math.h"

/* Where in the groups of a plane an element is. */
struct at {
	const uint16_t *scale;
	uint64_t row, left_in_row;
	uint32_t group, left;
};

static struct at begin(const struct tsr_entropy_scales *s, uint64_t first)
{
	struct at at = {
		.scale = s->scales, .row = s->row, .left_in_row = UINT64_MAX, .group = s->group
	};
	const uint64_t in_row = s->row ? first % s->row : first;

	at.left = s->group - (uint32_t)(in_row % s->group);
	if (s->row)
		at.left_in_row = s->row - in_row;
	if (at.left > at.left_in_row)
		at.left = (uint32_t)at.left_in_row;
	return at;
}

/* @n elements on, which all have this scale. */
static inline void advance(struct at *at, uint32_t n)
{
	at->left -= n;
	at->left_in_row -= n;
	if (at->left)
		return;
	at->scale++;
	if (!at->left_in_row)
		at->left_in_row = at->row;
	at->left = at->left_in_row < at->group ? (uint32_t)at->left_in_row : at->group;
}

static inline uint32_t least(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

void TSR_FOR_ISA(contexts_sums)(const struct tsr_entropy_beside *b, const uint8_t *codes, size_t n,
				uint32_t *rows, uint32_t *columns)
{
	struct at at = begin(&b->scales, b->first);
	uint64_t column = b->first % b->columns;

	for (size_t i = 0; i < n;) {
		const uint32_t size = least(least(at.left, b->columns - column), n - i);
		const int32_t scale = tsr_rans_scale_level(*at.scale);
		uint32_t sum = 0;

		for (uint32_t k = 0; k < size; k++) {
			const uint32_t level = (uint32_t)(scale +
							  tsr_rans_code_level(codes[i + k]));

			sum += level;
			columns[column + k] += level;
		}
		*rows += sum;
		i += size;
		column += size;
		advance(&at, size);
		if (column == b->columns) {
			column = 0;
			rows++;
		}
	}
}

void TSR_FOR_ISA(contexts_of_variances)(const struct tsr_entropy_beside *b,
					const struct tsr_contexts_means *m, size_t n,
					uint8_t *contexts)
{
	struct at at = begin(&b->scales, b->first);
	uint64_t column = b->first % b->columns;
	const int8_t *row = m->rows;

	for (size_t i = 0; i < n;) {
		const uint32_t size = least(least(at.left, b->columns - column), n - i);
		const int32_t lowest = TSR_RANS_VARIANCE_LOWEST + tsr_rans_scale_level(*at.scale) -
				       m->all - *row;

		for (uint32_t k = 0; k < size; k++)
			contexts[i + k] = tsr_rans_context(m->columns[column + k], lowest);
		i += size;
		column += size;
		advance(&at, size);
		if (column == b->columns) {
			column = 0;
			row++;
		}
	}
}

void TSR_FOR_ISA(contexts_of_momenta)(const struct tsr_entropy_beside *b,
				      const struct tsr_contexts_means *m, size_t n,
				      uint8_t *contexts)
{
	struct at at = begin(&b->scales, b->first);
	struct at variance = begin(&b->variance_scales, b->first);

	(void)m;
	for (size_t i = 0; i < n;) {
		const uint32_t size = least(least(at.left, variance.left), n - i);
		const int32_t lowest = TSR_RANS_MOMENTUM_LOWEST + tsr_rans_scale_level(*at.scale) -
				       tsr_rans_scale_level(*variance.scale);

		for (uint32_t k = 0; k < size; k++)
			contexts[i + k] = tsr_rans_context(tsr_rans_code_level(b->variances[i + k]),
							   lowest);
		i += size;
		advance(&at, size);
		advance(&variance, size);
	}
}
