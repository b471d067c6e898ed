/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of momenta that are stored as ratios to the roots of their variances, or without products of
 * factors, for C and for CUDA: see codec/math.h, whose contract they keep.  NaN become one NaN, as processors
 * differ in theirs.
 */
#ifndef TSR_CODEC_RATIO_MATH_H
#define TSR_CODEC_RATIO_MATH_H

#include "codec/math.h"

TSR_HD float tsr_ratio_one_nan(float x)
{
	return x == x ? x : tsr_f32_from_bits(0x7fc00000u);
}

/* What the update divides by; with the sign of @eps set, nothing if the root is 0. */
TSR_HD float tsr_ratio_divisor(float root, float eps)
{
	const float divisor = root + tsr_abs(eps);

	return tsr_bits_from_f32(eps) >> 31 && root == 0.0f ? 0.0f : divisor;
}

/* Without a divisor, as of a variance that is 0 with an eps of 0, there is no update either. */
TSR_HD float tsr_ratio_of(float m, float divisor)
{
	return divisor == 0.0f ? 0.0f : tsr_ratio_one_nan(m / divisor);
}

TSR_HD float tsr_ratio_momentum(float ratio, float divisor)
{
	return tsr_ratio_one_nan(ratio * divisor);
}

/* An element without its product, or with it again: @sign is -1 or 1. */
TSR_HD float tsr_ratio_add_product(float x, float product, float sign)
{
	return tsr_ratio_one_nan(x + sign * product);
}

#endif
