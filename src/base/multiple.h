/* SPDX-License-Identifier: Apache-2.0 */
/* Where units of several lengths begin together. */
#ifndef TSR_BASE_MULTIPLE_H
#define TSR_BASE_MULTIPLE_H

#include <stdint.h>

/* The least common multiple of two numbers that are not 0. */
static inline uint64_t tsr_common_multiple(uint64_t a, uint64_t b)
{
	uint64_t x = a, y = b;

	while (y) {
		const uint64_t rest = x % y;

		x = y;
		y = rest;
	}
	return a / x * b;
}

#endif
