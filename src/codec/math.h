/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas that decide stored bits, for C and for CUDA; extra_bits_math.h and group_math.h have
 * the others.  docs/internals/numerics.md derives them.
 *
 * Each formula stands here once, and whatever else computes it is for speed only and proven equal:
 * codec/simd/lanes.h and lanes_f16.h have the ULP split and the companding of ordinary values for
 * AVX2 (tests/unit/test_ordinary.c and test_levels.c compare all codes), gpu/shortcut.cuh has
 * quotients, roots, companding and the ULP split for GPUs (tests/gpu/proofs.cu).
 *
 * All arithmetic is IEEE binary32, round to nearest even, one rounding per operation, nothing
 * contracted: build with -ffp-contract=off, nvcc --fmad=false --ftz=false --prec-div=true
 * --prec-sqrt=true.  The only fused operation is tsr_fma().  Special values are settled on bit
 * patterns.  The functions are branch-free, so that loops over them become SIMD code.
 */
#ifndef TSR_CODEC_MATH_H
#define TSR_CODEC_MATH_H

#include <stdint.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "tersor cannot be built with -ffast-math: its bits are specified"
#endif

#ifdef __CUDACC__
#define TSR_HD static __host__ __device__ __forceinline__
#else
#define TSR_HD static inline __attribute__((always_inline, unused))
#endif

/* Whether the processor has a fused multiply-add. */
#if defined(__CUDA_ARCH__) || defined(__FMA__)
#define TSR_HAS_FMA 1
#else
#define TSR_HAS_FMA 0
#endif

/* --- Bit patterns ------------------------------------------------------------------------- */

#define TSR_F32_SIGN 0x80000000u
#define TSR_F32_MAG 0x7fffffffu
#define TSR_F32_INF 0x7f800000u

TSR_HD uint32_t tsr_bits_from_f32(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

TSR_HD float tsr_f32_from_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

TSR_HD float tsr_abs(float x)
{
	return tsr_f32_from_bits(tsr_bits_from_f32(x) & TSR_F32_MAG);
}

/* The exponent field in its place; a nonnegative integer, so that signed comparisons serve. */
TSR_HD int32_t tsr_exponent_bits(float x)
{
	return (int32_t)(tsr_bits_from_f32(x) & TSR_F32_INF);
}

/* The larger of two magnitudes; a NaN is larger than all, so that it is not lost. */
TSR_HD float tsr_max_magnitude(float a, float b)
{
	return tsr_bits_from_f32(a) > tsr_bits_from_f32(b) ? a : b;
}

/* `lo` where x is NaN: a clamp is also the guard before a conversion to an integer. */
TSR_HD float tsr_clamp(float x, float lo, float hi)
{
#if defined(__CUDA_ARCH__)
	return fminf(fmaxf(x, lo), hi);
#else
	const float at_least = x > lo ? x : lo;

	return at_least < hi ? at_least : hi;
#endif
}

/*
 * RN(a * b + c) with one rounding.
 *
 * Without a fused instruction the sum is formed in binary64.  That is the same value wherever the
 * exact a * b + c has at most 53 significant bits, which holds for every use in this file
 * (docs/internals/numerics.md, "Weights") and is tested exhaustively.
 */
TSR_HD float tsr_fma(float a, float b, float c)
{
#if defined(__CUDA_ARCH__)
	return __fmaf_rn(a, b, c);
#elif TSR_HAS_FMA
	return __builtin_fmaf(a, b, c);
#else
	return (float)((double)a * (double)b + (double)c);
#endif
}

TSR_HD float tsr_sqrt(float x)
{
#if defined(__CUDA_ARCH__)
	return __fsqrt_rn(x);
#else
	return __builtin_sqrtf(x);
#endif
}

/*
 * 1 / d as two floats: the one above it, and the rest, which is negative.  Compilers compute it at
 * compile time if d is a constant.
 */
struct tsr_inverse {
	float above, rest;
};

TSR_HD struct tsr_inverse tsr_inverse_of(float d, float unit)
{
	const float above = tsr_f32_from_bits(tsr_bits_from_f32(1.0f / d) + 1);
	const struct tsr_inverse i = { above * unit,
				       (float)(1.0 / (double)d - (double)above) * unit };

	return i;
}

/*
 * RN(q / d) for an integer q from -d - 1 to d, d = 127, 255 or 32767.  Where there is a fused
 * multiply-add, q times the two parts of the inverse gives the same value as the division and takes
 * a fraction of its time; tested for every q.
 */
TSR_HD float tsr_code_quotient(float q, float d)
{
#if TSR_HAS_FMA
	const struct tsr_inverse inverse = tsr_inverse_of(d, 1.0f);

	return tsr_fma(q, inverse.above, q * inverse.rest);
#else
	return q / d;
#endif
}

/* -RN(q / d) * unit, a power of two, but +0 where q is 0. */
TSR_HD float tsr_minus_code_quotient(float q, float d, float unit)
{
#if TSR_HAS_FMA
	const struct tsr_inverse inverse = tsr_inverse_of(d, unit);

	return tsr_fma(-q, inverse.above, q * -inverse.rest);
#else
	return (0.0f - q / d) * unit;
#endif
}

/* Nearest integer, halves away from zero: RN(x + copysign(0.5, x)), truncated.  Odd in x. */
TSR_HD int32_t tsr_round_half_away_i32(float x)
{
	const uint32_t sign = tsr_bits_from_f32(x) & TSR_F32_SIGN;

	return (int32_t)(x + tsr_f32_from_bits(sign | 0x3f000000u));
}

/* --- Narrow floats: round to nearest even, NaN stays a quiet NaN ---------------------------- */

/*
 * Their bits travel in the low half of a uint32_t: loops whose values are all of one width are what
 * compilers turn into good SIMD code.
 */
TSR_HD uint32_t tsr_bf16_from_f32(float x)
{
	const uint32_t bits = tsr_bits_from_f32(x);
	const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
	const uint32_t quiet = bits >> 16 | 0x40u;

	return (int32_t)(bits & TSR_F32_MAG) > (int32_t)TSR_F32_INF ? quiet : rounded;
}

TSR_HD float tsr_f32_from_bf16(uint32_t narrow)
{
	return tsr_f32_from_bits(narrow << 16);
}

/* x rounded to the grid of BF16, as a float. */
TSR_HD float tsr_bf16_round(float x)
{
	return tsr_f32_from_bf16(tsr_bf16_from_f32(x));
}

/*
 * FP32 magnitude rounded where the mantissa of FP16 ends, for what is normal in FP16 or larger.
 * Infinities stay infinite; a NaN gives infinity.
 */
TSR_HD int32_t tsr_f16_round_normal(float x)
{
	const int32_t mag = (int32_t)(tsr_bits_from_f32(x) & TSR_F32_MAG);
	const int32_t at_most = mag < (int32_t)TSR_F32_INF ? mag : (int32_t)TSR_F32_INF;

	return (at_most + 0xfff + (at_most >> 13 & 1)) & ~0x1fff;
}

/*
 * 0.5 and a magnitude below 2^-14, FP16's least normal number, rounded to a multiple of 2^-24: that
 * is where the last place of the sum is.  No step makes a subnormal float, which some CPUs do
 * slowly.
 */
TSR_HD float tsr_f16_round_subnormal(float x)
{
	return tsr_abs(x) + 0.5f;
}

/* x rounded to the grid of FP16, as a float; an infinity from 65520 on and for NaN. */
TSR_HD float tsr_f16_round(float x)
{
	const float normal = tsr_f32_from_bits((uint32_t)tsr_f16_round_normal(x));
	const float subnormal = tsr_f16_round_subnormal(x) - 0.5f;
	const float rounded = tsr_abs(x) < 0x1p-14f ? subnormal : normal;
	const float mag = rounded < 65536.0f ? rounded : tsr_f32_from_bits(TSR_F32_INF);

	return tsr_f32_from_bits(tsr_bits_from_f32(mag) | (tsr_bits_from_f32(x) & TSR_F32_SIGN));
}

/* The FP16 of x where |x| < 65520: without the steps that an infinity and NaN take. */
TSR_HD uint32_t tsr_f16_from_small_f32(float x)
{
	const uint32_t bits = tsr_bits_from_f32(x);
	const int32_t mag = (int32_t)(bits & TSR_F32_MAG);
	const int32_t normal = (mag + (0xfff - (112 << 23)) + (mag >> 13 & 1)) >> 13;
	const int32_t subnormal = (int32_t)(tsr_bits_from_f32(tsr_f16_round_subnormal(x)) -
					    0x3f000000u);
	const int32_t code = tsr_abs(x) < 0x1p-14f ? subnormal : normal;

	return ((bits & TSR_F32_SIGN) | (uint32_t)code << 16) >> 16;
}

/*
 * Exponents of the two formats are 112 apart.  The sign is put to the code in the upper half, so
 * that SIMD code packs one vector and not two.
 */
TSR_HD uint32_t tsr_f16_from_f32(float x)
{
	const uint32_t bits = tsr_bits_from_f32(x);
	const int32_t normal = (tsr_f16_round_normal(x) - (112 << 23)) >> 13;
	const int32_t subnormal = (int32_t)(tsr_bits_from_f32(tsr_f16_round_subnormal(x)) -
					    0x3f000000u);
	const int32_t code = tsr_abs(x) < 0x1p-14f ? subnormal : normal;
	const int32_t finite = code < 0x7c00 ? code : 0x7c00;
	const int32_t quiet = 0x7e00 | (int32_t)(bits >> 13 & 0x1ff);
	const int32_t is_nan = x != x;

	return ((bits & TSR_F32_SIGN) | (uint32_t)(is_nan ? quiet : finite) << 16) >> 16;
}

/* A subnormal is put behind the leading bit of 2^-14, which is then taken off again. */
TSR_HD float tsr_f32_from_f16(uint32_t narrow)
{
	const int32_t mag = (int32_t)(narrow & 0x7fff);
	const int32_t is_subnormal = mag < 0x400;
	const int32_t offset = is_subnormal ? 113 << 23 : 112 << 23;
	const float lead = is_subnormal ? 0x1p-14f : 0.0f;
	const float value = tsr_f32_from_bits((uint32_t)((mag << 13) + offset)) - lead;
	const uint32_t special = mag >= 0x7c00 ? 112u << 23 : 0;

	return tsr_f32_from_bits((tsr_bits_from_f32(value) + special) | (narrow & 0x8000) << 16);
}

/* --- ULP split (FlashOptim, Algorithm 1) ---------------------------------------------------- */

/*
 * What the split needs to know of a narrow format with `mant` mantissa bits.  2^l is half the ULP
 * of the narrow weight n.  With P the power of two in the exponent field of n as a float (at least
 * that of the format's least normal number), 2^l = P * 2^-(mant + 1), and P is read off n.
 */
struct tsr_split_format {
	uint32_t min_power_bits; /* P of zero and subnormals */
	float up; /* 2^mant */
	float down; /* 2^-(mant + 1) */
};

TSR_HD struct tsr_split_format tsr_split_bf16(void)
{
	const struct tsr_split_format f = { 1u << 23, 0x1p7f, 0x1p-8f };

	return f;
}

TSR_HD struct tsr_split_format tsr_split_f16(void)
{
	const struct tsr_split_format f = { 113u << 23, 0x1p10f, 0x1p-11f };

	return f;
}

TSR_HD uint32_t tsr_split_power_bits(struct tsr_split_format f, float narrow)
{
	const int32_t power = (int32_t)(tsr_bits_from_f32(narrow) & TSR_F32_INF);

	return (uint32_t)(power > (int32_t)f.min_power_bits ? power : (int32_t)f.min_power_bits);
}

/* Codes of a signed type go from minus this to this. */
#define TSR_LEVELS(type) (sizeof(type) == 1 ? 127.0f : 32767.0f)

/*
 * The correction of x against its narrow weight n: round(t * levels), t = (x - n) * 2^-l.
 * 2^-l is applied as 2^(128 - E) * 2^mant because alone it is not always a float; the difference
 * and the first product are exact, the second is the one rounding of t * levels.  As n is the
 * nearest to x, |t| <= 1.  0 where n is Inf or NaN.  `levels` is 127 or 32767.
 */
TSR_HD int32_t tsr_ulp_correction(struct tsr_split_format f, float x, float narrow, float levels)
{
	const int32_t power_bits = (int32_t)tsr_split_power_bits(f, narrow);
	const float inverse = tsr_f32_from_bits((255u << 23) - (uint32_t)power_bits);
	const float diff = power_bits < (int32_t)TSR_F32_INF ? x - narrow : 0.0f;

	return tsr_round_half_away_i32(diff * inverse * (f.up * levels));
}

/*
 * RN(n + RN(correction / levels) * 2^l), rounded once.  A zero correction gives n itself, which
 * keeps the sign of -0, Inf and every NaN: the fraction is made with the other sign, so that what is
 * added to n is -0 then.
 */
TSR_HD float tsr_ulp_join(struct tsr_split_format f, float narrow, int32_t correction, float levels)
{
	const int32_t power_bits = (int32_t)tsr_split_power_bits(f, narrow);
	const float minus = tsr_minus_code_quotient((float)correction, levels, f.down);
	/* Not -minus: gcc 12 makes one operation of it and the one before, and +0 of -0. */
	const float joined = tsr_fma(minus, -tsr_f32_from_bits((uint32_t)power_bits), narrow);

	return power_bits < (int32_t)TSR_F32_INF ? joined : narrow;
}

/* --- Exact split: the correction is a difference of bit patterns ---------------------------- */

/*
 * Magnitude of the narrow weight: rounded half away from zero, so that the rest fits 16 bits.
 * A NaN keeps to the NaN patterns of BF16; then the rest may saturate, and it stays a NaN.
 */
TSR_HD int32_t tsr_exact16_narrow_mag(int32_t mag)
{
	const int32_t rounded = (int32_t)(((uint32_t)mag + 0x8000u) >> 16);
	const int32_t at_least = rounded > 0x7f81 ? rounded : 0x7f81;
	const int32_t nan = at_least < 0x7fff ? at_least : 0x7fff;

	return mag > (int32_t)TSR_F32_INF ? nan : rounded;
}

TSR_HD uint32_t tsr_exact16_narrow(float x)
{
	const uint32_t bits = tsr_bits_from_f32(x);
	const int32_t mag = tsr_exact16_narrow_mag((int32_t)(bits & TSR_F32_MAG));

	return (bits >> 16 & 0x8000u) | (uint32_t)mag;
}

TSR_HD int32_t tsr_exact16_correction(float x, uint32_t narrow)
{
	const int32_t mag = (int32_t)(tsr_bits_from_f32(x) & TSR_F32_MAG);
	const int32_t rest = mag - (int32_t)((narrow & 0x7fff) << 16);
	const int32_t at_least = rest > -32768 ? rest : -32768;

	return at_least < 32767 ? at_least : 32767;
}

/* Whether a finite x has an infinite narrow weight (it decodes all the same). */
TSR_HD int32_t tsr_exact16_overflows(float x)
{
	const int32_t mag = (int32_t)(tsr_bits_from_f32(x) & TSR_F32_MAG);

	return (mag >= 0x7f7f8000) & (mag < (int32_t)TSR_F32_INF);
}

TSR_HD float tsr_exact16_join(uint32_t narrow, int32_t correction)
{
	const uint32_t mag = ((narrow & 0x7fff) << 16) + (uint32_t)correction;

	return tsr_f32_from_bits((mag & TSR_F32_MAG) | (narrow & 0x8000) << 16);
}

/* --- Float split (Zamirai et al.; Kahan buffer) ---------------------------------------------- */

/* What is left of x for a second narrow float; 0 where the narrow weight is Inf or NaN. */
TSR_HD float tsr_float_rest(float x, float narrow)
{
	const uint32_t finite = (tsr_bits_from_f32(narrow) & TSR_F32_INF) < TSR_F32_INF;

	return tsr_f32_from_bits(tsr_bits_from_f32(x - narrow) & (0 - finite));
}

/* The narrow float of such a rest: half an ULP of FP16 is at most 16. */
TSR_HD uint32_t tsr_bf16_from_rest(float rest)
{
	return tsr_bf16_from_f32(rest);
}

TSR_HD uint32_t tsr_f16_from_rest(float rest)
{
	return tsr_f16_from_small_f32(rest);
}

/* The narrow weight itself where the rest is zero, which keeps -0, or where it is Inf or NaN. */
TSR_HD float tsr_float_join(float narrow, float rest)
{
	const uint32_t special = (tsr_bits_from_f32(narrow) & TSR_F32_INF) == TSR_F32_INF;

#if defined(__clang__) && !defined(__CUDACC__)
	/*
	 * clang turns the choice below into narrow + (... ? -0 : rest), which makes a signaling NaN
	 * quiet.  So the kept weight does not pass through the sum.
	 */
	const uint32_t keep = 0 - (uint32_t)(special | (rest == 0.0f));
	const uint32_t kept = tsr_bits_from_f32(narrow) & keep;
	const float sum = tsr_f32_from_bits(tsr_bits_from_f32(narrow) & ~keep) +
			  tsr_f32_from_bits(tsr_bits_from_f32(rest) & ~keep);

	return tsr_f32_from_bits(tsr_bits_from_f32(sum) | kept);
#else
	return (special | (rest == 0.0f)) ? narrow : narrow + rest;
#endif
}

#endif
