/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_SWEEP_MATH_H
#define TERSOR_SWEEP_MATH_H

/*
 * What a sweep computes of one value x and what came back for it, y; for C and for CUDA.  All of it
 * is counted, added or compared as integers, so a report does not depend on the order.
 */

#include "tersor/math.h"

/* |x - y| / |x|, for finite x and y and nonzero x: two roundings. */
TSR_HD float tsr_sweep_relative(float x, float y)
{
	return tsr_abs(x - y) / tsr_abs(x);
}

/*
 * The same by way of a power of two that takes differences of small x away from the subnormal
 * numbers, which some CPUs divide slowly.  Scaling both sides of a quotient is exact, and where
 * y * 2^40 overflows so does the quotient.  For exponent fields below TSR_SWEEP_SMALL.
 */
#define TSR_SWEEP_SMALL (64 << 23)

TSR_HD float tsr_sweep_relative_small(float x, float y)
{
	const float scaled = x * 0x1p40f;

	return tsr_abs(scaled - y * 0x1p40f) / tsr_abs(scaled);
}

/*
 * A relative error r in units of 2^-47.  Nothing is rounded: two floats that differ are at least
 * 2^-24 of the larger apart, so r is 0 or at least 2^-24, and then its last place is 2^-47 or more.
 * From 2^16 on, which no codec here comes near, a term is 2^63; the maximum still tells.
 */
#define TSR_SWEEP_TERM_MAX 0x1p16f

TSR_HD uint64_t tsr_sweep_term(float r)
{
	return (uint64_t)((r < TSR_SWEEP_TERM_MAX ? r : TSR_SWEEP_TERM_MAX) * 0x1p47f);
}

/* The distance of two finite values in FP32 bit patterns, -0 and +0 being one. */
TSR_HD uint32_t tsr_sweep_ulp(uint32_t x_bits, uint32_t y_bits)
{
	const uint32_t x = x_bits & TSR_F32_MAG, y = y_bits & TSR_F32_MAG;
	const uint32_t same = x > y ? x - y : y - x;

	return (x_bits ^ y_bits) & TSR_F32_SIGN ? x + y : same;
}

#endif
