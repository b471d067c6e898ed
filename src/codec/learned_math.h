/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of codecs whose blocks, and what codes stand for, are learned from the data (Gefen), for C
 * and for CUDA: see codec/math.h, whose contract they keep.
 */
#ifndef TSR_CODEC_LEARNED_MATH_H
#define TSR_CODEC_LEARNED_MATH_H

#include "codec/math.h"

/*
 * The index of the entry nearest to z of 256 ascending ones, of two the lower.  Eight steps find the first
 * that is not below z; distances are rounded to FP32.
 */
TSR_HD int32_t tsr_nearest_entry(const float *entry, float z)
{
	int32_t right = 0, left;

	for (int32_t step = 128; step > 0; step /= 2)
		right += entry[right + step - 1] < z ? step : 0;
	left = right > 0 ? right - 1 : 0;
	return tsr_abs(z - entry[left]) <= tsr_abs(z - entry[right]) ? left : right;
}

/* Of a block of zeros the quotient counts as 0. */
TSR_HD int32_t tsr_gefen_code(const float *entry, float m, float scale)
{
	return tsr_nearest_entry(entry, scale > 0.0f ? m / scale : 0.0f);
}

TSR_HD float tsr_gefen_value(const float *entry, uint32_t code, float scale)
{
	return entry[code] * scale;
}

/* A value as it is in a state of BF16 or F16. */
TSR_HD float tsr_gefen_narrow(int32_t is_bf16, int32_t is_f16, float x)
{
	if (is_bf16)
		return tsr_bf16_round(x);
	return is_f16 ? tsr_f16_round(x) : x;
}

/* Elements that are added one after the other; the sums of these pieces are added likewise. */
#define TSR_MEAN_PIECE 64u

/* A mean of a sum; that of positive values is positive. */
TSR_HD float tsr_block_mean(double sum, uint64_t n)
{
	const float mean = (float)(sum / (double)n);

	return sum > 0.0 && !(mean > 0.0f) ? tsr_f32_from_bits(1) : mean;
}

#endif
