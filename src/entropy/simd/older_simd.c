/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of differences: older elements, what is expected of new ones, and what these are. */
#include "entropy/base_elements.h"

#include <string.h>

#include "entropy/differences_math.h"
#include "entropy/scale_runs.h"

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t load(const uint8_t *from, size_t i, unsigned width)
{
	uint32_t four;
	uint16_t two;

	if (width == 1)
		return from[i];
	if (width == 2) {
		memcpy(&two, from + 2 * i, 2);
		return two;
	}
	memcpy(&four, from + 4 * i, 4);
	return four;
}

INLINE void store(uint32_t x, uint8_t *to, size_t i, unsigned width)
{
	const uint16_t two = (uint16_t)x;

	if (width == 1)
		to[i] = (uint8_t)x;
	else if (width == 2)
		memcpy(to + 2 * i, &two, 2);
	else
		memcpy(to + 4 * i, &x, 4);
}

/* An element as its number in the order of all; the widths are constants when inlined. */
INLINE uint32_t get(const uint8_t *plane, const uint8_t *correction, size_t i, unsigned width,
		    unsigned more, bool is_float)
{
	uint32_t x = load(plane, i, width);

	x = tsr_difference_ordered(x, 8 * width, is_float);
	if (!more)
		return x;
	return x << (8 * more) | tsr_difference_ordered(load(correction, i, more), 8 * more, false);
}

INLINE void put(uint32_t x, uint8_t *plane, uint8_t *correction, size_t i, unsigned width,
		unsigned more, bool is_float)
{
	const uint32_t high = tsr_difference_unordered(x >> 8 * more, 8 * width, is_float);
	const uint32_t low = tsr_difference_unordered(x & ((1u << 8 * more) - 1),
						      8 * (more ? more : 1), false);

	store(high, plane, i, width);
	if (more)
		store(low, correction, i, more);
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

INLINE void fill_floats(const uint8_t *restrict plane, unsigned width, unsigned mantissa, size_t n,
			uint8_t lowest, uint8_t *restrict contexts)
{
	for (size_t i = 0; i < n; i++)
		contexts[i] = tsr_difference_context(
			tsr_difference_exponent(load(plane, i, width), 8 * width, mantissa),
			lowest);
}

/* Floats by exponent; integers of one byte by their upper bits. */
static void fill_contexts(const struct tsr_entropy_old *old, size_t n, uint8_t lowest,
			  uint8_t *restrict contexts)
{
	const unsigned width = old->kind.width;
	const uint8_t *restrict plane = old->plane;

	if (old->kind.of == TSR_DIFFERENCE_FLOATS && width == 2 && old->kind.mantissa == 7)
		fill_floats(plane, 2, 7, n, lowest, contexts); /* BF16, in lanes of 16 bits */
	else if (old->kind.of == TSR_DIFFERENCE_FLOATS && width == 2)
		fill_floats(plane, 2, old->kind.mantissa, n, lowest, contexts);
	else if (old->kind.of == TSR_DIFFERENCE_FLOATS)
		fill_floats(plane, 4, old->kind.mantissa, n, lowest, contexts);
	else if (width == 1)
		for (size_t i = 0; i < n; i++)
			contexts[i] = plane[i] >> 5;
	else
		memset(contexts, 0, n);
}

static void rescale(const uint8_t *codes, uint32_t n, uint32_t ratio, uint32_t *expected,
		    uint8_t *contexts)
{
	for (uint32_t k = 0; k < n; k++) {
		const uint32_t code = tsr_difference_rescale(codes[k], ratio);

		expected[k] = tsr_difference_ordered(code, 8, false);
		contexts[k] = tsr_difference_code_context((uint8_t)code);
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

INLINE uint32_t add_exponents(const uint8_t *plane, unsigned width, unsigned mantissa, size_t n)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += tsr_difference_exponent(load(plane, i, width), 8 * width, mantissa);
	return sum;
}

uint32_t TSR_FOR_ISA(older_exponents)(const struct tsr_entropy_old *old, size_t n)
{
	if (old->kind.width == 2)
		return add_exponents(old->plane, 2, old->kind.mantissa, n);
	return add_exponents(old->plane, 4, old->kind.mantissa, n);
}

void TSR_FOR_ISA(older_expect)(const struct tsr_entropy_old *old, size_t n, uint8_t lowest,
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
	if (expected)
		WITH_WIDTHS(old->kind, EXPECT);
#undef EXPECT
	if (contexts)
		fill_contexts(old, n, lowest, contexts);
}

void TSR_FOR_ISA(older_subtract)(const struct tsr_entropy_old *old, const uint8_t *plane,
				 const uint8_t *correction, size_t n, uint32_t *differences,
				 uint8_t *symbols)
{
	const unsigned bits = 8 * (old->kind.width + old->kind.correction);
	const bool is_float = old->kind.of == TSR_DIFFERENCE_FLOATS;
	uint32_t any = 0;

#define SUBTRACT(width, more) \
	for (size_t i = 0; i < n; i++) \
	differences[i] = tsr_difference_fold(get(plane, correction, i, width, more, is_float), \
					     differences[i], 8 * ((width) + (more)))
	WITH_WIDTHS(old->kind, SUBTRACT);
#undef SUBTRACT
	for (size_t i = 0; i < n; i++)
		any |= differences[i];
	/* Those below 16 are symbols themselves. */
	if (bits <= 8 || any < 16)
		for (size_t i = 0; i < n; i++)
			symbols[i] = (uint8_t)differences[i];
	else
		for (size_t i = 0; i < n; i++)
			symbols[i] = (uint8_t)tsr_difference_symbol(differences[i], 32);
}

void TSR_FOR_ISA(older_add)(const struct tsr_entropy_old *old, const uint32_t *expected,
			    const uint32_t *differences, size_t n, uint8_t *plane,
			    uint8_t *correction)
{
	const bool is_float = old->kind.of == TSR_DIFFERENCE_FLOATS;

#define ADD(width, more) \
	for (size_t i = 0; i < n; i++) \
	put(tsr_difference_add(expected[i], tsr_difference_unfold(differences[i]), \
			       8 * ((width) + (more))), \
	    plane, correction, i, width, more, is_float)
	WITH_WIDTHS(old->kind, ADD);
#undef ADD
}

void TSR_FOR_ISA(older_widen)(const uint8_t *restrict symbols, size_t n,
			      uint32_t *restrict differences)
{
	for (size_t i = 0; i < n; i++)
		differences[i] = symbols[i];
}

void TSR_FOR_ISA(older_move)(const struct tsr_entropy_old *old, const uint8_t *restrict symbols,
			     size_t n, uint8_t *restrict plane, uint8_t *restrict correction)
{
	const bool is_float = old->kind.of == TSR_DIFFERENCE_FLOATS;
	const uint8_t *restrict from = old->plane;
	const uint8_t *restrict more_from = old->correction;

#define MOVE(width, more) \
	for (size_t i = 0; i < n; i++) \
	put(tsr_difference_add(get(from, more_from, i, width, more, is_float), \
			       tsr_difference_unfold(symbols[i]), 8 * ((width) + (more))), \
	    plane, correction, i, width, more, is_float)
	WITH_WIDTHS(old->kind, MOVE);
#undef MOVE
}
