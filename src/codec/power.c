/* SPDX-License-Identifier: Apache-2.0 */
/* Powers of two as correctly rounded floats, in integers. */
#include "codec/power.h"

#include <math.h>

#include "codec/math.h"

__extension__ typedef unsigned __int128 wide;

/* 2^64 times the fraction of log2 of 1, 3, 5, ... to nearest. */
static const uint64_t log2_fraction[32] = {
	0x0000000000000000, 0x95c01a39fbd687a0, 0x5269e12f346e2bf9, 0xceaecfea80859b33,
	0x2b803473f7ad0f3f, 0x759d4f80cba83bf9, 0xb35004723c465e69, 0xe829fb693044b399,
	0x1663f6fac913167d, 0x3f782d7204d01447, 0x646eea247c5c22d3, 0x86082806b1d532c4,
	0xa4d3c25e68dc57f2, 0xc1404eadf38396df, 0xdba4a47aa996d25a, 0xf446359b13539551,
	0x0b5d69bac77ec399, 0x2118b119b4f3c72c, 0x359ebc5b69d927e0, 0x49101eac381ce609,
	0x5b8887367433795e, 0x6d1fafdce20a8290, 0x7dea15a32c1b3b38, 0x8df988f4ae806f1e,
	0x9d5d9fd5010b3666, 0xac241134c4e99e1c, 0xba58feb2703a9e37, 0xc80730b0001667f2,
	0xd53847ac00a69be7, 0xe1f4e5170d02a99b, 0xee44cd59ffab62f3, 0xfa2f045e7832aa72,
};

/* 2^64 ln(2)^n / n!, n = 1, 2, ..., rounded down: the series of 2^f - 1. */
static const uint64_t coefficient[18] = {
	0xb17217f7d1cf79ab, 0x3d7f7bff058b1d50, 0x0e35846b82505fc5, 0x0276556df749cee5,
	0x005761ff9e299cc4, 0x000a184897c363c3, 0x0000ffe5fe2c4586, 0x0000162c0223a5c8,
	0x000001b5253d395e, 0x0000001e4cf5158b, 0x00000001e8cac735, 0x000000001c3bd650,
	0x0000000001816193, 0x0000000000131496, 0x000000000000e1b7, 0x00000000000009c7,
	0x0000000000000066, 0x0000000000000003,
};

tsr_fixed64 tsr_fixed64_log2(unsigned n)
{
	tsr_fixed64 whole = 0;
	unsigned odd = n;

	while (odd % 2 == 0)
		odd /= 2;
	while (n >>= 1)
		whole++;
	return whole * TSR_FIXED64_1 + (tsr_fixed64)log2_fraction[odd / 2];
}

tsr_fixed64 tsr_fixed64_log2_of(float x)
{
	int exponent;
	/* From 2^63 to 2^64; a square has a bit more where the logarithm's next bit is set. */
	uint64_t m = (uint64_t)ldexp((double)frexpf(x, &exponent), 64), fraction = 0;

	for (unsigned i = 0; i < 64; i++) {
		const wide square = (wide)m * m;
		const uint64_t bit = (uint64_t)(square >> 127);

		m = (uint64_t)(square >> (63 + bit));
		fraction = fraction << 1 | bit;
	}
	return (exponent - 1) * TSR_FIXED64_1 + (tsr_fixed64)fraction;
}

/* 2^64 (2^(f / 2^64) - 1): what is cut off in 18 products is below 2^-58. */
static uint64_t series(uint64_t f)
{
	uint64_t sum = 0;

	for (unsigned i = sizeof(coefficient) / sizeof(*coefficient); i-- > 0;)
		sum = coefficient[i] + (uint64_t)((wide)sum * f >> 64);
	return (uint64_t)((wide)sum * f >> 64);
}

float tsr_exp2_rounded(tsr_fixed64 a)
{
	const int exponent = (int)(a >> 64);
	const uint64_t fraction = series((uint64_t)a);
	const uint64_t significand = (uint64_t)1 << 63 | fraction >> 1;
	const int kept = exponent < -126 ? 150 + exponent : 24; /* bits of it */
	uint64_t rounded, rest;

	if (exponent > 127)
		return INFINITY;
	if (kept < 0)
		return 0.0f;
	rounded = kept ? significand >> (64 - kept) : 0;
	rest = significand << kept;
	rounded += rest > (uint64_t)1 << 63 || (rest == (uint64_t)1 << 63 && (rounded & 1));
	/* The hidden bit of a normal number adds 1 to the exponent field, and so does a carry. */
	rounded += kept == 24 ? (uint64_t)(exponent + 126) << 23 : 0;
	return tsr_f32_from_bits((uint32_t)rounded);
}
