/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FP32 to bfloat16, twice; one of them is wrong for some numbers.  Which?
 *
 *	cc -O2 -shared -fPIC -o to_bf16.so to_bf16.c
 *	tersor sweep --library ./to_bf16.so --symbol to_bf16
 *	tersor sweep --library ./to_bf16.so --symbol to_bf16_fast
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static int is_nan(uint32_t bits)
{
	return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* Rounded to nearest; of two that are as near, to the even one. */
void to_bf16(const float *in, void *out, size_t n)
{
	uint16_t *y = out;

	for (size_t i = 0; i < n; i++) {
		const uint32_t x = bits_of(in[i]);

		y[i] = is_nan(x) ? 0x7fc0 : (uint16_t)((x + 0x7fffu + (x >> 16 & 1)) >> 16);
	}
}

/* "The same, with one operation less": halfway cases round up. */
void to_bf16_fast(const float *in, void *out, size_t n)
{
	uint16_t *y = out;

	for (size_t i = 0; i < n; i++) {
		const uint32_t x = bits_of(in[i]);

		y[i] = is_nan(x) ? 0x7fc0 : (uint16_t)((x + 0x8000u) >> 16);
	}
}
