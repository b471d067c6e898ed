/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast path for ordinary values with AVX2: the formulas of codec/math.h and group_math.h without
 * what special values take, which is a third of the operations, on batches of 32 elements.  gcc 12
 * takes three times as many operations to narrow to 8 bits and two and a half times as many to widen
 * from them, since it works on four vectors at once and cannot know that codes fit.  The tests
 * compare all of this with the formulas, bit for bit.
 */
#ifndef TSR_CODEC_LANES_H
#define TSR_CODEC_LANES_H

#if defined(__AVX2__) && defined(__FMA__)
#define TSR_HAS_LANES 1
/*
 * With AVX-512 there are instructions that narrow, and what gcc makes of the formulas of ULP splits
 * is as fast; what it makes of those of groups is not.
 */
#ifdef __AVX512F__
#define TSR_HAS_WIDEST_LANES 0
#else
#define TSR_HAS_WIDEST_LANES 1
#endif

#include <immintrin.h>
#include <stdbool.h>

#include "codec/math.h"

#define LANES_BATCH 32
#define LANES static inline __attribute__((always_inline))

typedef float lanes_f32 __attribute__((vector_size(32)));
typedef int32_t lanes_i32 __attribute__((vector_size(32)));
typedef uint32_t lanes_u32 __attribute__((vector_size(32)));

LANES lanes_f32 lanes_load(const float *x)
{
	return (lanes_f32)_mm256_loadu_ps(x);
}

LANES void lanes_store(float *x, lanes_f32 v)
{
	_mm256_storeu_ps(x, (__m256)v);
}

LANES lanes_f32 lanes_all(float x)
{
	return (lanes_f32)_mm256_set1_ps(x);
}

LANES lanes_i32 lanes_all_i32(uint32_t x)
{
	return (lanes_i32)_mm256_set1_epi32((int32_t)x);
}

LANES lanes_f32 lanes_abs(lanes_f32 x)
{
	return (lanes_f32)((lanes_i32)x & lanes_all_i32(TSR_F32_MAG));
}

LANES lanes_i32 lanes_max(lanes_i32 a, lanes_i32 b)
{
	return (lanes_i32)_mm256_max_epi32((__m256i)a, (__m256i)b);
}

LANES lanes_f32 lanes_fma(lanes_f32 a, lanes_f32 b, lanes_f32 c)
{
	return (lanes_f32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

/* -a * b + c */
LANES lanes_f32 lanes_minus_fma(lanes_f32 a, lanes_f32 b, lanes_f32 c)
{
	return (lanes_f32)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

/* The nearest integer, ties to even. */
LANES lanes_i32 lanes_nearest(lanes_f32 x)
{
	return (lanes_i32)_mm256_cvtps_epi32((__m256)x);
}

LANES lanes_i32 lanes_toward_zero(lanes_f32 x)
{
	return (lanes_i32)_mm256_cvttps_epi32((__m256)x);
}

/* Halves away from zero, like tsr_round_half_away_i32(). */
LANES lanes_i32 lanes_half_away(lanes_f32 x)
{
	const lanes_i32 sign = (lanes_i32)x & lanes_all_i32(TSR_F32_SIGN);

	return lanes_toward_zero(x + (lanes_f32)(sign | (lanes_i32)lanes_all(0.5f)));
}

/* @a where the lane of @which is all ones, @b where it is zero. */
LANES lanes_f32 lanes_select(lanes_i32 which, lanes_f32 a, lanes_f32 b)
{
	return (lanes_f32)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)which);
}

/* --- Widening and narrowing ------------------------------------------------------------------ */

LANES lanes_f32 lanes_from_int8_t(const int8_t *code)
{
	return (lanes_f32)_mm256_cvtepi32_ps(
		_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)code)));
}

LANES lanes_f32 lanes_from_uint8_t(const uint8_t *code)
{
	return (lanes_f32)_mm256_cvtepi32_ps(
		_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)code)));
}

LANES lanes_f32 lanes_from_int16_t(const int16_t *code)
{
	return (lanes_f32)_mm256_cvtepi32_ps(
		_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)code)));
}

LANES lanes_f32 lanes_from_bf16(const uint16_t *narrow)
{
	const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)narrow);

	return (lanes_f32)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
}

LANES void lanes_widen_bf16(const uint16_t *narrow, float *x)
{
	for (int i = 0; i < LANES_BATCH; i += 8)
		lanes_store(x + i, lanes_from_bf16(narrow + i));
}

/* 16 values that fit. */
LANES void lanes_put_uint16_t(uint16_t *out, lanes_i32 a, lanes_i32 b)
{
	const __m256i mixed = _mm256_packus_epi32((__m256i)a, (__m256i)b);

	_mm256_storeu_si256((__m256i *)(void *)out, _mm256_permute4x64_epi64(mixed, 0xd8));
}

/* Packing takes from the lower half of each vector first, and then from the upper ones. */
LANES __m256i lanes_in_order(__m256i mixed)
{
	return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/*
 * 32 values; those that do not fit become the nearest that does.  False if one is the least integer,
 * which is what a NaN becomes.
 */
LANES bool lanes_put_int8_t(int8_t *out, const lanes_i32 v[4])
{
	const __m256i codes = lanes_in_order(
		_mm256_packs_epi16(_mm256_packs_epi32((__m256i)v[0], (__m256i)v[1]),
				   _mm256_packs_epi32((__m256i)v[2], (__m256i)v[3])));
	const __m256i least = _mm256_cmpeq_epi8(codes, _mm256_set1_epi8(INT8_MIN));

	_mm256_storeu_si256((__m256i *)(void *)out, codes);
	return _mm256_testz_si256(least, least);
}

LANES bool lanes_put_int16_t(int16_t *out, const lanes_i32 v[4])
{
	const __m256i a = _mm256_packs_epi32((__m256i)v[0], (__m256i)v[1]);
	const __m256i b = _mm256_packs_epi32((__m256i)v[2], (__m256i)v[3]);
	const __m256i is_least = _mm256_set1_epi16(INT16_MIN);
	const __m256i least = _mm256_or_si256(_mm256_cmpeq_epi16(a, is_least),
					      _mm256_cmpeq_epi16(b, is_least));

	_mm256_storeu_si256((__m256i *)(void *)out, _mm256_permute4x64_epi64(a, 0xd8));
	_mm256_storeu_si256((__m256i *)(void *)(out + 16), _mm256_permute4x64_epi64(b, 0xd8));
	return _mm256_testz_si256(least, least);
}

LANES void lanes_put_uint8_t(uint8_t *out, const lanes_i32 v[4])
{
	const __m256i mixed = _mm256_packus_epi16(_mm256_packs_epi32((__m256i)v[0], (__m256i)v[1]),
						  _mm256_packs_epi32((__m256i)v[2], (__m256i)v[3]));

	_mm256_storeu_si256((__m256i *)(void *)out, lanes_in_order(mixed));
}

/* --- ULP split -------------------------------------------------------------------------------- */

LANES lanes_i32 lanes_power_bits(struct tsr_split_format f, lanes_i32 narrow)
{
	return lanes_max(narrow & lanes_all_i32(TSR_F32_INF), lanes_all_i32(f.min_power_bits));
}

/* tsr_ulp_join() */
LANES lanes_f32 lanes_ulp_join(struct tsr_split_format f, lanes_f32 narrow, lanes_f32 q,
			       float levels)
{
	const struct tsr_inverse inverse = tsr_inverse_of(levels, f.down);
	const lanes_f32 rest = q * lanes_all(-inverse.rest);
	const lanes_f32 minus = lanes_minus_fma(q, lanes_all(inverse.above), rest);
	const lanes_i32 power = lanes_power_bits(f, (lanes_i32)narrow);
	const lanes_f32 joined = lanes_minus_fma(minus, (lanes_f32)power, narrow);

	return lanes_select(power == lanes_all_i32(TSR_F32_INF), narrow, joined);
}

/*
 * tsr_bf16_from_f32() and tsr_ulp_correction().  With 8 bits and BF16, t * 127 is exact, and a tie
 * only at 63.5, which goes to 64 even by rounding to even.  An infinite narrow weight or a NaN makes
 * t NaN: then it returns false, and what it stored is undefined.
 */
#define DEFINE_LANES_BF16_ULP(id, code, levels, rounded_as) \
	LANES bool lanes_encode_##id(const float *x, uint16_t *narrow, code *correction) \
	{ \
		const struct tsr_split_format f = tsr_split_bf16(); \
		lanes_i32 upper[4], c[4]; \
\
		for (int i = 0; i < 4; i++) { \
			const lanes_f32 v = lanes_load(x + 8 * i); \
			const lanes_u32 bits = (lanes_u32)v; \
			const lanes_u32 sum = bits + 0x7fffu + (bits >> 16 & 1u); \
			const lanes_i32 n = (lanes_i32)(sum & 0xffff0000u); \
			const lanes_i32 inverse = lanes_all_i32(255u << 23) - \
						  lanes_power_bits(f, n); \
			const lanes_f32 t = (v - (lanes_f32)n) * (lanes_f32)inverse; \
\
			upper[i] = (lanes_i32)(sum >> 16); \
			c[i] = rounded_as(t * lanes_all(f.up * levels)); \
		} \
		lanes_put_uint16_t(narrow, upper[0], upper[1]); \
		lanes_put_uint16_t(narrow + 16, upper[2], upper[3]); \
		return lanes_put_##code(correction, c); \
	} \
\
	LANES bool lanes_decode_##id(const uint16_t *narrow, const code *correction, float *x) \
	{ \
		for (int i = 0; i < LANES_BATCH; i += 8) { \
			const lanes_f32 n = lanes_from_bf16(narrow + i); \
			const lanes_f32 q = lanes_from_##code(correction + i); \
\
			lanes_store(x + i, lanes_ulp_join(tsr_split_bf16(), n, q, levels)); \
		} \
		return true; \
	}

DEFINE_LANES_BF16_ULP(bf16_ulp8, int8_t, 127.0f, lanes_nearest)
DEFINE_LANES_BF16_ULP(bf16_ulp16, int16_t, 32767.0f, lanes_half_away)

/* --- Groups of 32 ----------------------------------------------------------------------------- */

/* Per lane the largest magnitude of a group, as bits. */
LANES lanes_i32 lanes_group_max(const float *x)
{
	const lanes_i32 a = lanes_max((lanes_i32)lanes_abs(lanes_load(x)),
				      (lanes_i32)lanes_abs(lanes_load(x + 8)));
	const lanes_i32 b = lanes_max((lanes_i32)lanes_abs(lanes_load(x + 16)),
				      (lanes_i32)lanes_abs(lanes_load(x + 24)));

	return lanes_max(a, b);
}

/* The larger ones of neighbours in @a, then those of @b. */
LANES lanes_i32 lanes_max_pairs(lanes_i32 a, lanes_i32 b)
{
	const __m256 even = _mm256_shuffle_ps((__m256)a, (__m256)b, 0x88);
	const __m256 odd = _mm256_shuffle_ps((__m256)a, (__m256)b, 0xdd);

	return lanes_max((lanes_i32)even, (lanes_i32)odd);
}

/* The largest magnitudes of 8 groups. */
LANES void lanes_absmax(const float *x, float *absmax)
{
	lanes_i32 quad[2];

	for (int i = 0; i < 2; i++) {
		const float *at = x + 4 * LANES_BATCH * i;
		const lanes_i32 ab = lanes_max_pairs(lanes_group_max(at),
						     lanes_group_max(at + LANES_BATCH));
		const lanes_i32 cd = lanes_max_pairs(lanes_group_max(at + 2 * LANES_BATCH),
						     lanes_group_max(at + 3 * LANES_BATCH));

		quad[i] = lanes_max_pairs(ab, cd);
	}
	{
		const __m256i low = _mm256_permute2x128_si256((__m256i)quad[0], (__m256i)quad[1],
							      0x20);
		const __m256i high = _mm256_permute2x128_si256((__m256i)quad[0], (__m256i)quad[1],
							       0x31);

		lanes_store(absmax, (lanes_f32)lanes_max((lanes_i32)low, (lanes_i32)high));
	}
}

/* tsr_softsign_code_in(), on magnitudes: the sign comes last. */
LANES lanes_i32 lanes_softsign_code(lanes_f32 m, lanes_f32 scale)
{
	const lanes_f32 mag = lanes_abs(m);
	const lanes_f32 t = lanes_fma(mag / (scale + mag), lanes_all(254.0f), lanes_all(0.5f));

	return (lanes_i32)_mm256_sign_epi32((__m256i)lanes_toward_zero(t), (__m256i)m);
}

LANES lanes_i32 lanes_linear_code(lanes_f32 m, lanes_f32 inverse)
{
	return lanes_half_away(m * inverse);
}

/* Of roots, or of the values themselves. */
LANES lanes_i32 lanes_unsigned_code(lanes_f32 v, lanes_f32 inverse)
{
	return lanes_toward_zero(v * inverse + 0.5f);
}

/* tsr_positive_code() with a @least of 0 or 1: patterns of positive numbers are positive integers. */
LANES lanes_i32 lanes_positive_code(lanes_i32 code, lanes_f32 v, lanes_i32 least)
{
	return lanes_max(code, (lanes_i32)_mm256_min_epi32((__m256i)v, (__m256i)least));
}

LANES lanes_f32 lanes_code_quotient(lanes_f32 q, float d)
{
	const struct tsr_inverse inverse = tsr_inverse_of(d, 1.0f);

	return lanes_fma(q, lanes_all(inverse.above), q * lanes_all(inverse.rest));
}

LANES lanes_f32 lanes_softsign_value(lanes_f32 q, lanes_f32 scale)
{
	return scale * (q / (lanes_all(254.0f) - lanes_abs(q)));
}

LANES lanes_f32 lanes_sqrt_value(lanes_f32 q, lanes_f32 scale)
{
	const lanes_f32 root = lanes_code_quotient(q, 255.0f) * scale;

	return root * root;
}

LANES lanes_f32 lanes_linear_value(lanes_f32 q, lanes_f32 scale)
{
	return lanes_code_quotient(q, 127.0f) * scale;
}

LANES lanes_f32 lanes_ulinear_value(lanes_f32 q, lanes_f32 scale)
{
	return lanes_code_quotient(q, 255.0f) * scale;
}

/*
 * The whole batches of @n elements: `done` counts their elements.  Where the fast path rejects a
 * batch, which it has stored already, the reference formula encodes or decodes it again.
 */
#define LANES_MOST(done, n, fast, formula) \
	do { \
		for (; done + LANES_BATCH <= n; done += LANES_BATCH) { \
			if (!(fast)) \
				formula; \
		} \
	} while (0)

#else
#define TSR_HAS_LANES 0
#define TSR_HAS_WIDEST_LANES 0
#define LANES_MOST LANES_NONE
#endif

/* Where there is no fast path, or it is faster only if there is nothing wider than AVX2. */
#define LANES_NONE(done, n, fast, formula) ((void)0)
#if TSR_HAS_WIDEST_LANES
#define LANES_MOST_IF_WIDEST LANES_MOST
#else
#define LANES_MOST_IF_WIDEST LANES_NONE
#endif

#endif
