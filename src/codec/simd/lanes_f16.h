/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs with FP16 weights, 32 elements at a time, by the conversions that processors with AVX2
 * have: to FP16 they do what tsr_f16_from_f32() does, whatever x is, and from it what
 * tsr_f32_from_f16() does, but for making NaN quiet.
 */
#ifndef TSR_CODEC_LANES_F16_H
#define TSR_CODEC_LANES_F16_H

#include "codec/simd/lanes.h"

#if TSR_HAS_LANES

LANES __m128i lanes_f16(lanes_f32 x)
{
	return _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

LANES __m128i lanes_load_u16(const uint16_t *narrow)
{
	return _mm_loadu_si128((const __m128i *)(const void *)narrow);
}

LANES void lanes_store_u16(uint16_t *out, __m128i v)
{
	_mm_storeu_si128((__m128i *)(void *)out, v);
}

LANES lanes_f32 lanes_from_f16(__m128i narrow)
{
	return (lanes_f32)_mm256_cvtph_ps(narrow);
}

/* Whether no NaN is among 32 numbers: lanes_from_f16() is right then. */
LANES bool lanes_have_no_f16_nan(const uint16_t *narrow)
{
	const __m256i mask = _mm256_set1_epi16(0x7fff), inf = _mm256_set1_epi16(0x7c00);
	const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)narrow);
	const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(narrow + 16));
	const __m256i nan = _mm256_or_si256(_mm256_cmpgt_epi16(_mm256_and_si256(a, mask), inf),
					    _mm256_cmpgt_epi16(_mm256_and_si256(b, mask), inf));

	return _mm256_testz_si256(nan, nan);
}

/* --- fp16 ------------------------------------------------------------------------------------- */

LANES bool lanes_encode_fp16(const float *x, uint16_t *narrow, uint16_t *unused)
{
	(void)unused;
	for (int i = 0; i < LANES_BATCH; i += 8)
		lanes_store_u16(narrow + i, lanes_f16(lanes_load(x + i)));
	return true;
}

LANES bool lanes_decode_fp16(const uint16_t *narrow, const uint16_t *unused, float *x)
{
	(void)unused;
	for (int i = 0; i < LANES_BATCH; i += 8)
		lanes_store(x + i, lanes_from_f16(lanes_load_u16(narrow + i)));
	return lanes_have_no_f16_nan(narrow);
}

/* --- fp16+fp16 -------------------------------------------------------------------------------- */

LANES lanes_i32 lanes_special(lanes_f32 narrow)
{
	const lanes_i32 inf = lanes_all_i32(TSR_F32_INF);

	return ((lanes_i32)narrow & inf) == inf;
}

/* tsr_float_rest() */
LANES bool lanes_encode_fp16_fp16(const float *x, uint16_t *narrow, uint16_t *rest)
{
	for (int i = 0; i < LANES_BATCH; i += 8) {
		const lanes_f32 v = lanes_load(x + i);
		const __m128i n = lanes_f16(v);
		const lanes_f32 wide = lanes_from_f16(n);
		const lanes_i32 left = (lanes_i32)(v - wide) & ~lanes_special(wide);

		lanes_store_u16(narrow + i, n);
		lanes_store_u16(rest + i, lanes_f16((lanes_f32)left));
	}
	return true;
}

/* tsr_float_join() */
LANES bool lanes_decode_fp16_fp16(const uint16_t *narrow, const uint16_t *rest, float *x)
{
	for (int i = 0; i < LANES_BATCH; i += 8) {
		const lanes_f32 n = lanes_from_f16(lanes_load_u16(narrow + i));
		const lanes_f32 r = lanes_from_f16(lanes_load_u16(rest + i));
		const lanes_i32 alone = lanes_special(n) | (r == lanes_all(0.0f));

		lanes_store(x + i, lanes_select(alone, n, n + r));
	}
	return lanes_have_no_f16_nan(narrow);
}

/* --- fp16+ulp8 and fp16+ulp16 ----------------------------------------------------------------- */

/* tsr_ulp_correction() */
LANES lanes_i32 lanes_f16_correction(lanes_f32 x, lanes_f32 narrow, float levels)
{
	const struct tsr_split_format f = tsr_split_f16();
	const lanes_i32 power = lanes_power_bits(f, (lanes_i32)narrow);
	const lanes_i32 inverse = lanes_all_i32(255u << 23) - power;
	const lanes_i32 diff = (lanes_i32)(x - narrow) & (power < lanes_all_i32(TSR_F32_INF));

	return lanes_half_away((lanes_f32)diff * (lanes_f32)inverse * lanes_all(f.up * levels));
}

#define DEFINE_LANES_F16_ULP(id, code, levels) \
	LANES bool lanes_encode_##id(const float *x, uint16_t *narrow, code *correction) \
	{ \
		lanes_i32 c[4]; \
\
		for (int i = 0; i < 4; i++) { \
			const lanes_f32 v = lanes_load(x + 8 * i); \
			const __m128i n = lanes_f16(v); \
\
			lanes_store_u16(narrow + 8 * i, n); \
			c[i] = lanes_f16_correction(v, lanes_from_f16(n), levels); \
		} \
		lanes_put_##code(correction, c); \
		return true; \
	} \
\
	LANES bool lanes_decode_##id(const uint16_t *narrow, const code *correction, float *x) \
	{ \
		for (int i = 0; i < LANES_BATCH; i += 8) { \
			const lanes_f32 n = lanes_from_f16(lanes_load_u16(narrow + i)); \
			const lanes_f32 q = lanes_from_##code(correction + i); \
\
			lanes_store(x + i, lanes_ulp_join(tsr_split_f16(), n, q, levels)); \
		} \
		return lanes_have_no_f16_nan(narrow); \
	}

DEFINE_LANES_F16_ULP(fp16_ulp8, int8_t, 127.0f)
DEFINE_LANES_F16_ULP(fp16_ulp16, int16_t, 32767.0f)

#endif

#endif
