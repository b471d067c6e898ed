/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sweep computes from one value x and the decoded value y; for C and for CUDA.  All of it is
 * counted, added or compared as integers, so a report does not depend on the order.
 */
#ifndef TSR_CODEC_SWEEP_MATH_H
#define TSR_CODEC_SWEEP_MATH_H

#include "codec/math.h"

/*
 * The relative error of y is the quotient of these: |x - y| and |x|, for finite x and y and nonzero
 * x, both times a power of two that takes x to [1/2, 1) (as far as there is one; @exponent is its
 * exponent field).  That is exact, and keeps differences of small x away from the subnormal numbers,
 * which some CPUs and GPUs are slow to divide.  Where y times the power overflows, so would
 * the quotient.
 */
TSR_HD float tsr_sweep_unit(uint32_t exponent)
{
	return tsr_f32_from_bits((exponent < 252 ? 253 - exponent : 1) << 23);
}

TSR_HD float tsr_sweep_error(float x, float y, float unit)
{
	return tsr_abs(x * unit - y * unit);
}

TSR_HD float tsr_sweep_size(float x, float unit)
{
	return tsr_abs(x * unit);
}

/*
 * A relative error r in units of 2^-47.  Nothing is rounded: two floats that differ are at least
 * 2^-24 of the larger apart, so r is 0 or at least 2^-24, and then its last place is 2^-47 or more.
 * From 2^16 on, which no codec here comes near, a term is 2^63; the maximum is still right.
 */
#define TSR_SWEEP_TERM_MAX 0x1p16f

TSR_HD uint64_t tsr_sweep_term(float r)
{
	return (uint64_t)((r < TSR_SWEEP_TERM_MAX ? r : TSR_SWEEP_TERM_MAX) * 0x1p47f);
}

/*
 * From 32 to 64 the last place of binary64 is 2^-47: 16 terms below 2 added to 32 are an integer sum
 * in its mantissa, which is the difference of the bit patterns.
 */
#define TSR_SWEEP_SUM_START 32.0
#define TSR_SWEEP_SUM_TERMS 16

/* The distance of two finite values in FP32 bit patterns, -0 and +0 being one. */
TSR_HD uint32_t tsr_sweep_ulp(uint32_t x_bits, uint32_t y_bits)
{
	const uint32_t x = x_bits & TSR_F32_MAG, y = y_bits & TSR_F32_MAG;
	const uint32_t same = x > y ? x - y : y - x;

	return (x_bits ^ y_bits) & TSR_F32_SIGN ? x + y : same;
}

/* What one pattern adds to its row: counts are 0 or 1. */
struct tsr_sweep_outcome {
	uint32_t exact, overflow, nan_out, compared;
	uint32_t ulp;
	uint32_t rel_bits; /* of the relative error, which are ordered like the values */
};

/*
 * Of finite x, whatever comes back.  @rel is the relative error if there is one, else anything.
 * Masks instead of nested conditions, of which compilers would make branches.
 */
TSR_HD struct tsr_sweep_outcome tsr_sweep_finite_outcome(float x, float y, float rel)
{
	const uint32_t xb = tsr_bits_from_f32(x), yb = tsr_bits_from_f32(y);
	const int32_t y_mag = (int32_t)(yb & TSR_F32_MAG);
	const uint32_t is_finite = y_mag < (int32_t)TSR_F32_INF;
	struct tsr_sweep_outcome o;

	o.exact = xb == yb;
	o.overflow = y_mag == (int32_t)TSR_F32_INF;
	o.nan_out = y_mag > (int32_t)TSR_F32_INF;
	o.compared = is_finite & ((xb & TSR_F32_MAG) != 0);
	o.ulp = tsr_sweep_ulp(xb, yb) & (0 - is_finite);
	o.rel_bits = tsr_bits_from_f32(rel) & (0 - o.compared);
	return o;
}

/*
 * The same for nonzero x all of which come back finite and with their sign, which is nearly always
 * so: then the distance is the difference of the patterns.  Whether it was so is known from
 * the largest of each @changed (below the sign bit) and the largest relative error (at most 1; a
 * codec that overshoots by more is counted the other way, too).
 */
struct tsr_sweep_simple {
	uint32_t exact, ulp, changed;
};

TSR_HD struct tsr_sweep_simple tsr_sweep_simple_outcome(float x, float y)
{
	const uint32_t xb = tsr_bits_from_f32(x), yb = tsr_bits_from_f32(y);
	const uint32_t distance = yb - xb;
	struct tsr_sweep_simple o;

	o.exact = xb == yb;
	o.ulp = (int32_t)distance < 0 ? 0 - distance : distance;
	o.changed = xb ^ yb;
	return o;
}

TSR_HD uint32_t tsr_sweep_was_simple(uint32_t max_changed, uint32_t max_rel_bits)
{
	return (max_changed < TSR_F32_SIGN) & (max_rel_bits <= 0x3f800000u);
}

#endif
