/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of contexts: runs of elements of one row that share their scales. */
#include "entropy/contexts.h"
#include "entropy/rans_math.h"
#include "entropy/scale_runs.h"

/* --- Runs: what is written is no part of what is read, or there would be no SIMD code ---------------- */

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t add(const uint8_t *restrict codes, uint32_t n, int32_t scale,
		    uint32_t *restrict columns)
{
	uint32_t sum = 0;

	for (uint32_t k = 0; k < n; k++) {
		const uint32_t level = (uint32_t)(scale + tsr_rans_code_level(codes[k]));

		sum += level;
		columns[k] += level;
	}
	return sum;
}

INLINE void of_columns(const int8_t *restrict columns, uint32_t n, int32_t lowest,
		       uint8_t *restrict contexts)
{
	for (uint32_t k = 0; k < n; k++)
		contexts[k] = tsr_rans_context(columns[k], lowest);
}

INLINE void of_codes(const uint8_t *restrict codes, uint32_t n, int32_t lowest,
		     uint8_t *restrict contexts)
{
	for (uint32_t k = 0; k < n; k++)
		contexts[k] = tsr_rans_context(tsr_rans_code_level(codes[k]), lowest);
}

/* Most groups have 32 elements: for these the loops have a known length. */
#define USUAL 32u

static uint32_t add_levels(const uint8_t *codes, uint32_t n, int32_t scale, uint32_t *columns)
{
	return n == USUAL ? add(codes, USUAL, scale, columns) : add(codes, n, scale, columns);
}

static void contexts_of_columns(const int8_t *columns, uint32_t n, int32_t lowest,
				uint8_t *contexts)
{
	if (n == USUAL)
		of_columns(columns, USUAL, lowest, contexts);
	else
		of_columns(columns, n, lowest, contexts);
}

static void contexts_of_codes(const uint8_t *codes, uint32_t n, int32_t lowest, uint8_t *contexts)
{
	if (n == USUAL)
		of_codes(codes, USUAL, lowest, contexts);
	else
		of_codes(codes, n, lowest, contexts);
}

/* --- Pieces ------------------------------------------------------------------------------------ */

void TSR_FOR_ISA(contexts_sums)(const struct tsr_entropy_beside *b, const uint8_t *codes, size_t n,
				uint32_t *rows, uint32_t *columns)
{
	struct tsr_scale_run at = tsr_scale_run_begin(&b->scales, b->first);
	uint64_t column = b->first % b->columns;

	for (size_t i = 0; i < n;) {
		const uint32_t size = tsr_scale_run_least(
			tsr_scale_run_least(at.left, b->columns - column), n - i);
		const int32_t scale = tsr_rans_scale_level(*at.scale);

		*rows += add_levels(codes + i, size, scale, columns + column);
		i += size;
		column += size;
		tsr_scale_run_advance(&at, size);
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
	struct tsr_scale_run at = tsr_scale_run_begin(&b->scales, b->first);
	uint64_t column = b->first % b->columns;
	const int8_t *row = m->rows;

	for (size_t i = 0; i < n;) {
		const uint32_t size = tsr_scale_run_least(
			tsr_scale_run_least(at.left, b->columns - column), n - i);
		const int32_t lowest = TSR_RANS_VARIANCE_LOWEST + tsr_rans_scale_level(*at.scale) -
				       m->all - *row;

		contexts_of_columns(m->columns + column, size, lowest, contexts + i);
		i += size;
		column += size;
		tsr_scale_run_advance(&at, size);
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
	struct tsr_scale_run at = tsr_scale_run_begin(&b->scales, b->first);
	struct tsr_scale_run variance = tsr_scale_run_begin(&b->variance_scales, b->first);

	(void)m;
	for (size_t i = 0; i < n;) {
		const uint32_t size = tsr_scale_run_least(
			tsr_scale_run_least(at.left, variance.left), n - i);
		const int32_t lowest = TSR_RANS_MOMENTUM_LOWEST + tsr_rans_scale_level(*at.scale) -
				       tsr_rans_scale_level(*variance.scale);

		contexts_of_codes(b->variances + i, size, lowest, contexts + i);
		i += size;
		tsr_scale_run_advance(&at, size);
		tsr_scale_run_advance(&variance, size);
	}
}
