/* SPDX-License-Identifier: Apache-2.0 */
/* What older elements say of those that differ from them. */
#ifndef TSR_ENTROPY_BASE_ELEMENTS_H
#define TSR_ENTROPY_BASE_ELEMENTS_H

#include "base/isa.h"
#include "entropy/differences.h"

/* The bits of an element, with its correction. */
unsigned tsr_older_bits(struct tsr_difference_kind kind);

/* The exponent of context 0, of floats. */
uint8_t tsr_older_lowest(const struct tsr_entropy_old *old, size_t n);

/*
 * What the new elements are expected to be, as ordered integers, and their contexts.  Either may be NULL if
 * it is not wanted, but for variances.
 */
void tsr_older_expect(const struct tsr_entropy_old *old, size_t n, uint8_t lowest,
		      uint32_t *expected, uint8_t *contexts);

/* Expected elements to the folded differences of the new ones, and their symbols. */
void tsr_older_subtract(const struct tsr_entropy_old *old, const uint8_t *plane,
			const uint8_t *correction, size_t n, uint32_t *differences,
			uint8_t *symbols);

/* The new elements. */
void tsr_older_add(const struct tsr_entropy_old *old, const uint32_t *expected,
		   const uint32_t *differences, size_t n, uint8_t *plane, uint8_t *correction);

/* Symbols to differences, if they have no rests. */
void tsr_older_widen(const uint8_t *symbols, size_t n, uint32_t *differences);

/* The new elements of symbols that have no rests, in one pass; not of variances. */
void tsr_older_move(const struct tsr_entropy_old *old, const uint8_t *symbols, size_t n,
		    uint8_t *plane, uint8_t *correction);

/* The loops, and the sum of the exponents of floats. */
typedef uint32_t tsr_older_exponents_fn(const struct tsr_entropy_old *old, size_t n);
typedef void tsr_older_expect_fn(const struct tsr_entropy_old *old, size_t n, uint8_t lowest,
				 uint32_t *expected, uint8_t *contexts);
typedef void tsr_older_subtract_fn(const struct tsr_entropy_old *old, const uint8_t *plane,
				   const uint8_t *correction, size_t n, uint32_t *differences,
				   uint8_t *symbols);
typedef void tsr_older_add_fn(const struct tsr_entropy_old *old, const uint32_t *expected,
			      const uint32_t *differences, size_t n, uint8_t *plane,
			      uint8_t *correction);
typedef void tsr_older_widen_fn(const uint8_t *symbols, size_t n, uint32_t *differences);
TSR_ISA_DECLARE(tsr_older_exponents_fn, older_exponents)
TSR_ISA_DECLARE(tsr_older_expect_fn, older_expect)
TSR_ISA_DECLARE(tsr_older_subtract_fn, older_subtract)
TSR_ISA_DECLARE(tsr_older_add_fn, older_add)
typedef void tsr_older_move_fn(const struct tsr_entropy_old *old, const uint8_t *symbols, size_t n,
			       uint8_t *plane, uint8_t *correction);
TSR_ISA_DECLARE(tsr_older_widen_fn, older_widen)
TSR_ISA_DECLARE(tsr_older_move_fn, older_move)

#endif
