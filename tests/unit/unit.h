/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_TESTS_UNIT_H
#define TSR_TESTS_UNIT_H

/* What the unit tests share: cmocka and its includes, bit casts and random numbers of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof(*(array)))
#define UNUSED __attribute__((unused))

/* The exhaustive rest, which takes minutes. */
static inline UNUSED bool is_long_run(void)
{
	const char *value = getenv("TERSOR_LONG");

	return value && *value;
}

static inline UNUSED uint32_t bits_of(float x)
{
	union {
		float f;
		uint32_t u;
	} both = { .f = x };

	return both.u;
}

static inline UNUSED float float_of(uint32_t bits)
{
	union {
		uint32_t u;
		float f;
	} both = { .u = bits };

	return both.f;
}

static inline UNUSED bool is_nan_bits(uint32_t bits)
{
	return (bits & 0x7fffffffu) > 0x7f800000u;
}

static inline UNUSED bool is_finite_bits(uint32_t bits)
{
	return (bits & 0x7fffffffu) < 0x7f800000u;
}

/* splitmix64: the same numbers everywhere. */
static inline UNUSED uint64_t random_u64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static inline UNUSED uint32_t random_u32(uint64_t *state)
{
	return (uint32_t)(random_u64(state) >> 32);
}

#endif
