/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of the splits with extra bits, for C and for CUDA: see codec/math.h, whose
 * contract they keep.
 */
#ifndef TSR_CODEC_EXTRA_BITS_MATH_H
#define TSR_CODEC_EXTRA_BITS_MATH_H

#include "codec/math.h"

/* --- Truncated split (extra bits) ------------------------------------------------------------ */

/* Bit patterns of narrow weights. */
typedef uint16_t tsr_bf16_pattern;
typedef uint16_t tsr_f16_pattern;
typedef uint8_t tsr_e5m2_pattern;
typedef uint8_t tsr_e4m3_pattern;

/* The sign bit of a narrow weight. */
#define TSR_NARROW_SIGN(format) (1u << (8 * sizeof(tsr_##format##_pattern) - 1))

/*
 * The magnitude of x in fixed point: the 15 or 7 bits of its narrow weight rounded toward zero, then the
 * 16 bits that follow the last place of that.  Special values and overflow have a special narrow
 * magnitude and no bits after it.
 */
TSR_HD uint32_t tsr_bf16_extended(float x)
{
	const int32_t mag = (int32_t)(tsr_bits_from_f32(x) & TSR_F32_MAG);

	return (uint32_t)(mag > (int32_t)TSR_F32_INF ? (mag & 0x7fff0000) | 0x400000 : mag);
}

/*
 * FP16 has 13 bits to follow in its normal range.  Below it the last place is 2^-24, so the fixed
 * point is |x| * 2^40; what is below 2^-40 is cut off.  From 2^16 on: infinity.
 */
TSR_HD uint32_t tsr_f16_extended(float x)
{
	const int32_t mag = (int32_t)(tsr_bits_from_f32(x) & TSR_F32_MAG);
	const float below = mag < 113 << 23 ? tsr_abs(x) : 0.0f;
	const int32_t subnormal = (int32_t)(below * 0x1p40f);
	const int32_t at_most = mag < 143 << 23 ? mag : 143 << 23;
	const int32_t normal = (int32_t)(((uint32_t)at_most - (112u << 23)) << 3);
	const int32_t finite = mag < 113 << 23 ? subnormal : normal;
	const int32_t nan = (0x7e00 | (mag >> 13 & 0x1ff)) << 16;

	return (uint32_t)(mag > (int32_t)TSR_F32_INF ? nan : finite);
}

/*
 * FP8 has 18 (E5M2) or 19 (E4M3) bits to follow in its normal range, of which 16 are in reach.  Below it the
 * last place is 2^-16 or 2^-9, and what is below 2^-16 of that is cut off.  E5M2 ends as FP16 does.  E4M3
 * has no infinity: from 480 on, which would be the next pattern, there is NaN.
 */
TSR_HD uint32_t tsr_e5m2_extended(float x)
{
	const int32_t mag = (int32_t)(tsr_bits_from_f32(x) & TSR_F32_MAG);
	const float below = mag < 113 << 23 ? tsr_abs(x) : 0.0f;
	const int32_t subnormal = (int32_t)(below * 0x1p32f);
	const int32_t at_most = mag < 143 << 23 ? mag : 143 << 23;
	const int32_t normal = (int32_t)(((uint32_t)at_most - (112u << 23)) >> 5);
	const int32_t finite = mag < 113 << 23 ? subnormal : normal;
	const int32_t nan = (0x7e | (mag >> 21 & 1)) << 16;

	return (uint32_t)(mag > (int32_t)TSR_F32_INF ? nan : finite);
}

TSR_HD uint32_t tsr_e4m3_extended(float x)
{
	const int32_t mag = (int32_t)(tsr_bits_from_f32(x) & TSR_F32_MAG);
	const float below = mag < 121 << 23 ? tsr_abs(x) : 0.0f;
	const int32_t subnormal = (int32_t)(below * 0x1p25f);
	const int32_t largest = 0x43f00000; /* 480 */
	const int32_t at_most = mag < largest ? mag : largest;
	const int32_t normal = (int32_t)(((uint32_t)at_most - (120u << 23)) >> 4);

	return (uint32_t)(mag < 121 << 23 ? subnormal : normal);
}

/*
 * The narrow weight of x and its extended magnitude, and the first @k of the bits that follow.  @sign is
 * TSR_NARROW_SIGN().
 */
TSR_HD uint32_t tsr_trunc_narrow(uint32_t sign, float x, uint32_t extended)
{
	const uint32_t bits = tsr_bits_from_f32(x);

	return (sign == 0x80u ? bits >> 24 & 0x80u : bits >> 16 & 0x8000u) | extended >> 16;
}

TSR_HD uint32_t tsr_trunc_extra(uint32_t extended, uint32_t k)
{
	return (extended & 0xffffu) >> (16 - k);
}

/*
 * Stochastic rounding: 1 if the narrow weight is rounded up, with @random uniform in 16 bits; its
 * probability is what follows the last place, in units of that.  `largest` is the largest finite
 * narrow magnitude, which is never rounded up.
 */
TSR_HD uint32_t tsr_stochastic_up(uint32_t extended, uint32_t random, uint32_t largest)
{
	const uint32_t carry = ((extended & 0xffffu) + random) >> 16;

	return extended >> 16 == largest ? 0 : carry;
}

/* How the narrow weight is rounded. */
enum { TSR_TOWARD_ZERO, TSR_AT_RANDOM, TSR_TO_NEAREST };

/*
 * To nearest: the extended magnitude is rounded to @k bits behind the narrow weight, halves up, before it is
 * cut; special ones stay.  The narrow weight is then the next one up where the first of the bits is set, so
 * that no further bit says it; beyond the largest it is infinite.
 */
TSR_HD uint32_t tsr_extended_nearest(uint32_t extended, uint32_t largest, uint32_t k)
{
	return extended >> 16 > largest ? extended : extended + (0x8000u >> k);
}

TSR_HD uint32_t tsr_nearest_up(uint32_t extra, uint32_t k)
{
	return extra >> (k - 1) & 1;
}

TSR_HD uint32_t tsr_bf16_largest(void)
{
	return 0x7f7f;
}

TSR_HD uint32_t tsr_f16_largest(void)
{
	return 0x7bff;
}

TSR_HD uint32_t tsr_e5m2_largest(void)
{
	return 0x7b;
}

TSR_HD uint32_t tsr_e4m3_largest(void)
{
	return 0x7e;
}

/* The extended magnitude of a narrow weight that was rounded @up, with its @k extra bits. */
TSR_HD uint32_t tsr_trunc_join(uint32_t sign, uint32_t narrow, uint32_t up, uint32_t extra,
			       uint32_t k)
{
	const uint32_t mag = narrow & (sign - 1);
	const uint32_t down = mag - (up & (uint32_t)(mag != 0));

	return down << 16 | extra << (16 - k);
}

/* @narrow gives the sign, and is itself the value where it is special. */
TSR_HD float tsr_f32_from_bf16_extended(uint32_t narrow, uint32_t extended)
{
	const int32_t special = (narrow & 0x7f80u) == 0x7f80u;
	const uint32_t mag = special ? (narrow & 0x7fffu) << 16 : extended;

	return tsr_f32_from_bits(mag | (narrow & 0x8000u) << 16);
}

/* At most 13 bits follow; a subnormal is put behind the leading bit of 2^-14, as above. */
TSR_HD float tsr_f32_from_f16_extended(uint32_t narrow, uint32_t extended)
{
	const int32_t special = (narrow & 0x7c00u) == 0x7c00u;
	const int32_t ext = (int32_t)extended;
	const int32_t is_subnormal = ext < 0x400 << 16;
	const int32_t offset = is_subnormal ? 113 << 23 : 112 << 23;
	const float lead = is_subnormal ? 0x1p-14f : 0.0f;
	const float value = tsr_f32_from_bits((uint32_t)((ext >> 3) + offset)) - lead;
	const uint32_t nonfinite = ((narrow & 0x7fffu) << 13) + (224u << 23);
	const uint32_t mag = special ? nonfinite : tsr_bits_from_f32(value);

	return tsr_f32_from_bits(mag | (narrow & 0x8000u) << 16);
}

/* A subnormal is put behind the leading bit of the least normal number: at most 18 bits, so it is exact. */
TSR_HD float tsr_f32_from_e5m2_extended(uint32_t narrow, uint32_t extended)
{
	const int32_t special = (narrow & 0x7cu) == 0x7cu;
	const int32_t ext = (int32_t)extended;
	const int32_t is_subnormal = ext < 4 << 16;
	const int32_t offset = is_subnormal ? 113 << 23 : 112 << 23;
	const float lead = is_subnormal ? 0x1p-14f : 0.0f;
	const float value = tsr_f32_from_bits((uint32_t)((ext << 5) + offset)) - lead;
	const uint32_t nonfinite = ((narrow & 0x7fu) << 21) + (224u << 23);
	const uint32_t mag = special ? nonfinite : tsr_bits_from_f32(value);

	return tsr_f32_from_bits(mag | (narrow & 0x80u) << 24);
}

TSR_HD float tsr_f32_from_e4m3_extended(uint32_t narrow, uint32_t extended)
{
	const int32_t special = (narrow & 0x7fu) == 0x7fu;
	const int32_t ext = (int32_t)extended;
	const int32_t is_subnormal = ext < 8 << 16;
	const int32_t offset = is_subnormal ? 121 << 23 : 120 << 23;
	const float lead = is_subnormal ? 0x1p-6f : 0.0f;
	const float value = tsr_f32_from_bits((uint32_t)((ext << 4) + offset)) - lead;
	const uint32_t mag = special ? 0x7fc00000u : tsr_bits_from_f32(value);

	return tsr_f32_from_bits(mag | (narrow & 0x80u) << 24);
}

/* --- Random numbers: Philox4x32-10 (Salmon et al., 2011) -------------------------------------- */

/* 128 random bits that depend on the counter and the key only. */
struct tsr_philox {
	uint32_t word[4];
};

TSR_HD struct tsr_philox tsr_philox4x32(struct tsr_philox counter, uint32_t key0, uint32_t key1)
{
	uint32_t c0 = counter.word[0], c1 = counter.word[1];
	uint32_t c2 = counter.word[2], c3 = counter.word[3];
	struct tsr_philox out;

	for (int round = 0; round < 10; round++) {
		const uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;

		c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
		c1 = (uint32_t)b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
		c3 = (uint32_t)a;
		key0 += 0x9e3779b9u;
		key1 += 0xbb67ae85u;
	}
	out.word[0] = c0;
	out.word[1] = c1;
	out.word[2] = c2;
	out.word[3] = c3;
	return out;
}

/*
 * The random bits of 8 consecutive elements, 16 each, the first in the low half of word 0.  @block
 * is the index of the first of them in its tensor over 8, @stream says which tensor it is.
 */
TSR_HD struct tsr_philox tsr_stochastic_bits(uint64_t seed, uint64_t stream, uint64_t block)
{
	const struct tsr_philox counter = { { (uint32_t)block, (uint32_t)(block >> 32),
					      (uint32_t)stream, (uint32_t)(stream >> 32) } };

	return tsr_philox4x32(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

#endif
