/* SPDX-License-Identifier: Apache-2.0 */
/* What older elements say of those that differ from them. */
#ifndef TSR_ENTROPY_OLDER_H
#define TSR_ENTROPY_OLDER_H

#include "entropy/differences.h"

/* The bits of an element, with its correction. */
unsigned tsr_older_bits(struct tsr_difference_kind kind);

/* The exponent of context 0, of floats. */
uint8_t tsr_older_lowest(const struct tsr_entropy_old *old, size_t n);

/* What the new elements are expected to be, as ordered integers, and their contexts. */
void tsr_older_expect(const struct tsr_entropy_old *old, size_t n, uint8_t lowest,
		      uint32_t *expected, uint8_t *contexts);

/* Expected elements to the folded differences of the new ones. */
void tsr_older_subtract(const struct tsr_entropy_old *old, const uint8_t *plane,
			const uint8_t *correction, size_t n, uint32_t *differences);

/* The new elements. */
void tsr_older_add(const struct tsr_entropy_old *old, const uint32_t *expected,
		   const uint32_t *differences, size_t n, uint8_t *plane, uint8_t *correction);

#endif
