/* SPDX-License-Identifier: Apache-2.0 */
/* What older elements say of those that differ from them: numbers in the order of elements, and contexts. */
#include "entropy/older.h"

#include <string.h>

#include "base/little_endian.h"
#include "entropy/differences_math.h"
#include "entropy/scale_runs.h"

#define INLINE static inline __attribute__((always_inline))

unsigned tsr_older_bits(struct tsr_difference_kind kind)
{
	return 8 * (kind.width + kind.correction);
}

/* An element as its number in the order of all; the widths are constants when inlined. */
INLINE uint32_t get(const uint8_t *plane, const uint8_t *correction, size_t i, unsigned width,
		    unsigned more, bool is_float)
{
	uint32_t x = 0, c = 0;

	memcpy(&x, plane + i * width, width);
	x = tsr_difference_ordered(x, 8 * width, is_float);
	if (!more)
		return x;
	memcpy(&c, correction + i * more, more);
	return x << (8 * more) | tsr_difference_ordered(c, 8 * more, false);
}

INLINE void put(uint32_t x, uint8_t *plane, uint8_t *correction, size_t i, unsigned width,
		unsigned more, bool is_float)
{
	const uint32_t high = tsr_difference_unordered(x >> 8 * more, 8 * width, is_float);
	const uint32_t low = tsr_difference_unordered(x & ((1u << 8 * more) - 1),
						      8 * (more ? more : 1), false);

	memcpy(plane + i * width, &high, width);
	if (more)
		memcpy(correction + i * more, &low, more);
}

/* Do @what with the widths of a kind as constants. */
#define WITH_WIDTHS(kind, what) \
	do { \
		switch ((kind).width * 4 + (kind).correction) { \
		case 4: \
			what(1, 0); \
			break; \
		case 8: \
			what(2, 0); \
			break; \
		case 9: \
			what(2, 1); \
			break; \
		case 10: \
			what(2, 2); \
			break; \
		default: \
			what(4, 0); \
			break; \
		} \
	} while (0)

/* The exponent of an element without its correction. */
INLINE uint32_t exponent(const uint8_t *plane, size_t i, unsigned width, unsigned mantissa)
{
	uint32_t x = 0;

	memcpy(&x, plane + i * width, width);
	return (x & ((1u << (8 * width - 1)) - 1)) >> mantissa;
}

uint8_t tsr_older_lowest(const struct tsr_entropy_old *old, size_t n)
{
	const unsigned width = old->kind.width, mantissa = old->kind.mantissa;
	uint64_t sum = 0;

	if (old->kind.of != TSR_DIFFERENCE_FLOATS)
		return 0;
	if (width == 2)
		for (size_t i = 0; i < n; i++)
			sum += exponent(old->plane, i, 2, mantissa);
	else
		for (size_t i = 0; i < n; i++)
			sum += exponent(old->plane, i, width, mantissa);
	sum /= n;
	return sum > TSR_DIFFERENCE_BELOW ? (uint8_t)(sum - TSR_DIFFERENCE_BELOW) : 0;
}

/* Floats by exponent; integers of one byte by their upper bits. */
static void fill_contexts(const struct tsr_entropy_old *old, size_t n, uint8_t lowest,
			  uint8_t *contexts)
{
	const unsigned width = old->kind.width, mantissa = old->kind.mantissa;

	if (old->kind.of == TSR_DIFFERENCE_FLOATS) {
		for (size_t i = 0; i < n; i++)
			contexts[i] = tsr_difference_context(
				exponent(old->plane, i, width, mantissa), lowest);
	} else if (width == 1) {
		for (size_t i = 0; i < n; i++)
			contexts[i] = old->plane[i] >> 5;
	} else {
		memset(contexts, 0, n);
	}
}

static void rescale(const uint8_t *codes, uint32_t n, uint32_t ratio, uint32_t *expected,
		    uint8_t *contexts)
{
	for (uint32_t k = 0; k < n; k++) {
		const uint32_t code = tsr_difference_rescale(codes[k], ratio);

		expected[k] = tsr_difference_ordered(code, 8, false);
		contexts[k] = tsr_rans_context(tsr_rans_code_level((uint8_t)code),
					       TSR_RANS_VARIANCE_LOWEST);
	}
}

/* Codes of variances on the new scales, which change with each step; their size says how far they move. */
static void expect_variances(const struct tsr_entropy_old *old, size_t n, uint32_t *expected,
			     uint8_t *contexts)
{
	struct tsr_scale_run from = tsr_scale_run_begin(&old->old_scales, old->first);
	struct tsr_scale_run to = tsr_scale_run_begin(&old->scales, old->first);

	for (size_t i = 0; i < n;) {
		const uint32_t size = tsr_scale_run_least(to.left, n - i);

		rescale(old->plane + i, size, tsr_difference_ratio(*from.scale, *to.scale),
			expected + i, contexts + i);
		i += size;
		tsr_scale_run_advance(&from, size);
		tsr_scale_run_advance(&to, size);
	}
}

void tsr_older_expect(const struct tsr_entropy_old *old, size_t n, uint8_t lowest,
		      uint32_t *expected, uint8_t *contexts)
{
	const bool is_float = old->kind.of == TSR_DIFFERENCE_FLOATS;

	if (old->kind.of == TSR_DIFFERENCE_VARIANCES) {
		expect_variances(old, n, expected, contexts);
		return;
	}
#define EXPECT(width, more) \
	for (size_t i = 0; i < n; i++) \
	expected[i] = get(old->plane, old->correction, i, width, more, is_float)
	WITH_WIDTHS(old->kind, EXPECT);
#undef EXPECT
	fill_contexts(old, n, lowest, contexts);
}

void tsr_older_subtract(const struct tsr_entropy_old *old, const uint8_t *plane,
			const uint8_t *correction, size_t n, uint32_t *differences)
{
	const bool is_float = old->kind.of == TSR_DIFFERENCE_FLOATS;

#define SUBTRACT(width, more) \
	for (size_t i = 0; i < n; i++) \
	differences[i] = tsr_difference_fold(get(plane, correction, i, width, more, is_float), \
					     differences[i], 8 * ((width) + (more)))
	WITH_WIDTHS(old->kind, SUBTRACT);
#undef SUBTRACT
}

void tsr_older_add(const struct tsr_entropy_old *old, const uint32_t *expected,
		   const uint32_t *differences, size_t n, uint8_t *plane, uint8_t *correction)
{
	const bool is_float = old->kind.of == TSR_DIFFERENCE_FLOATS;

#define ADD(width, more) \
	for (size_t i = 0; i < n; i++) \
	put(tsr_difference_unfold(differences[i], expected[i], 8 * ((width) + (more))), plane, \
	    correction, i, width, more, is_float)
	WITH_WIDTHS(old->kind, ADD);
#undef ADD
}
