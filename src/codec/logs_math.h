/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of log<k>, variances whose roots are coded by their logarithm, for C and for CUDA: see
 * codec/math.h, whose contract they keep, and codec/table_math.h for their tables, a set for each k.
 *
 * A group has a scale s and one of TSR_LOG_RANGES ranges, which is a row of the table: the value of code c
 * from 1 on is 2^(-(C - c) range / (C - 1)), C = 2^k - 1, that of code 0 is 0.  A root is coded by its ratio
 * to s.
 */
#ifndef TSR_CODEC_LOGS_MATH_H
#define TSR_CODEC_LOGS_MATH_H

#include "codec/table_math.h"

#define TSR_LOG_RANGES 16u

/*
 * f28: the bits of s rounded up to a multiple of 16, whose places the number of the range takes.  The
 * largest is the last one whose square is finite.
 */
#define TSR_F28_MAX 0x5f7ffff0u /* 2^64 (1 - 2^-20) */

/* What is stored of the largest root, without the range; a NaN is the largest. */
TSR_HD uint32_t tsr_f28_from_root(float largest)
{
	const uint32_t up = (tsr_bits_from_f32(largest) + 15u) & ~15u;

	return up < TSR_F28_MAX ? up : TSR_F28_MAX;
}

TSR_HD float tsr_f28_scale(uint32_t stored)
{
	return tsr_f32_from_bits(stored & ~15u);
}

TSR_HD uint32_t tsr_f28_range(uint32_t stored)
{
	return stored & 15u;
}

/*
 * The range of a group: the first one that reaches down to its least root, or the last.  @reach are the
 * powers of two that ranges reach down to.
 */
TSR_HD uint32_t tsr_log_range(const float *reach, float scale, float least)
{
	uint32_t range = 0;

	for (uint32_t step = TSR_LOG_RANGES / 2; step; step /= 2)
		range += scale * reach[range + step - 1] <= least ? 0 : step;
	return scale > 0.0f ? range : 0;
}

/* The code of a root that is @positive; no other one has any code but 0. */
TSR_HD uint32_t tsr_log_code(const struct tsr_table_row *row, const uint32_t *entry, float root,
			     float divisor)
{
	const uint32_t key = tsr_table_key(root, divisor, row->unit, row->lowest, row->highest);
	const uint32_t code = tsr_table_code(entry, row->bucket, row->shift, key);

	return root > 0.0f ? (code ? code : 1) : 0;
}

/* The variance; there is one NaN only. */
TSR_HD float tsr_log_variance(float value, float scale)
{
	const float root = value * scale, variance = root * root;

	return variance == variance ? variance : tsr_f32_from_bits(0x7fc00000u);
}

#endif
