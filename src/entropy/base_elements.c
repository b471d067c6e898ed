/* SPDX-License-Identifier: Apache-2.0 */
/* What older elements say of those that differ from them: numbers in the order of elements, and contexts. */
#include "entropy/base_elements.h"

#include "entropy/differences_math.h"

unsigned tsr_older_bits(struct tsr_difference_kind kind)
{
	return 8 * (kind.width + kind.correction);
}

uint8_t tsr_older_lowest(const struct tsr_entropy_old *old, size_t n)
{
	static tsr_older_exponents_fn *const exponents[] = TSR_ISA_VARIANTS(older_exponents);
	size_t mean;

	if (old->kind.of != TSR_DIFFERENCE_FLOATS)
		return 0;
	mean = exponents[tsr_isa_level()](old, n) / n;
	return mean > TSR_DIFFERENCE_BELOW ? (uint8_t)(mean - TSR_DIFFERENCE_BELOW) : 0;
}

void tsr_older_expect(const struct tsr_entropy_old *old, size_t n, uint8_t lowest,
		      uint32_t *expected, uint8_t *contexts)
{
	static tsr_older_expect_fn *const expect[] = TSR_ISA_VARIANTS(older_expect);

	expect[tsr_isa_level()](old, n, lowest, expected, contexts);
}

void tsr_older_subtract(const struct tsr_entropy_old *old, const uint8_t *plane,
			const uint8_t *correction, size_t n, uint32_t *differences,
			uint8_t *symbols)
{
	static tsr_older_subtract_fn *const subtract[] = TSR_ISA_VARIANTS(older_subtract);

	subtract[tsr_isa_level()](old, plane, correction, n, differences, symbols);
}

void tsr_older_add(const struct tsr_entropy_old *old, const uint32_t *expected,
		   const uint32_t *differences, size_t n, uint8_t *plane, uint8_t *correction)
{
	static tsr_older_add_fn *const add[] = TSR_ISA_VARIANTS(older_add);

	add[tsr_isa_level()](old, expected, differences, n, plane, correction);
}

void tsr_older_widen(const uint8_t *symbols, size_t n, uint32_t *differences)
{
	static tsr_older_widen_fn *const widen[] = TSR_ISA_VARIANTS(older_widen);

	widen[tsr_isa_level()](symbols, n, differences);
}

void tsr_older_move(const struct tsr_entropy_old *old, const uint8_t *symbols, size_t n,
		    uint8_t *plane, uint8_t *correction)
{
	static tsr_older_move_fn *const move[] = TSR_ISA_VARIANTS(older_move);

	move[tsr_isa_level()](old, symbols, n, plane, correction);
}
