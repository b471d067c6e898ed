/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The logarithm by which elements are cut into blocks, with the same bits everywhere: IEEE operations
 * only, and no case of its own for any value.
 */
#ifndef TSR_LEARN_LOG_MATH_H
#define TSR_LEARN_LOG_MATH_H

#include <stdint.h>
#include <string.h>

#define TSR_LOG_UNIT 16777216.0 /* logarithms are integers in units of 2^-24 */

static inline double tsr_double_from_bits(uint64_t bits)
{
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline uint64_t tsr_bits_from_double(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/*
 * ln(x + 1e-12) of a nonnegative x, rounded to a multiple of 2^-24; what is not finite counts as the
 * largest float.  With x + 1e-12 = 2^k m and m about 1, ln m = 2 atanh((m - 1) / (m + 1)), whose series
 * ends where the rest is below 2^-40.  64 is added to k so that it is positive, and taken back.
 */
static inline int32_t tsr_log_fixed(float x)
{
	const uint64_t below_1 = UINT64_C(0x3fe6a09e667f3bcd); /* sqrt(1/2) */
	const double d = (double)(x < 0x1.fffffep127f ? x : 0x1.fffffep127f) + 1e-12;
	const uint64_t bits = tsr_bits_from_double(d);
	const uint64_t k = (bits - (below_1 - (UINT64_C(64) << 52))) >> 52;
	const double m = tsr_double_from_bits(bits - (k << 52) + (UINT64_C(64) << 52));
	const double exponent = tsr_double_from_bits(k | UINT64_C(0x4330000000000000)) -
				(0x1p52 + 64);
	const double t = (m - 1) / (m + 1), tt = t * t;
	double sum = 1.0 / 15;

	sum = sum * tt + 1.0 / 13;
	sum = sum * tt + 1.0 / 11;
	sum = sum * tt + 1.0 / 9;
	sum = sum * tt + 1.0 / 7;
	sum = sum * tt + 1.0 / 5;
	sum = sum * tt + 1.0 / 3;
	sum = sum * tt + 1;
	/* The sum of a number and 1.5 * 2^52 ends in the nearest integer, |ln| * 2^24 < 2^31. */
	sum = (exponent * 0.693147180559945309417 + 2 * t * sum) * TSR_LOG_UNIT + 0x1.8p52;
	return (int32_t)(uint32_t)tsr_bits_from_double(sum);
}

#endif
