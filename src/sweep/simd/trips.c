/* SPDX-License-Identifier: Apache-2.0 */
/*
 * There and back: the codecs whose formulas are worth a loop of their own over the values of one
 * exponent.  The formulas are those of math.h; only what follows from the exponent is computed once.
 *
 * Encoding and decoding are two loops with the codes in memory between them: in one, the compiler
 * sees that conditions of the two depend on each other and makes branches of them.
 */
#include <string.h>

#include "codec/isa.h"
#include "sweep/kernels.h"
#include "tersor/math.h"

#define INLINE static inline __attribute__((always_inline))
#define N TSR_SWEEP_STRIP

/* --- BF16 and FP16 under one set of names ----------------------------------------------------- */

INLINE uint32_t bf16_from(float x, int32_t exponent)
{
	return (void)exponent, tsr_bf16_from_number(x);
}
INLINE float bf16_round(float x, int32_t exponent)
{
	return (void)exponent, tsr_f32_from_bf16(tsr_bf16_from_number(x));
}
INLINE uint32_t bf16_from_any(float x)
{
	return tsr_bf16_from_number(x);
}
INLINE float bf16_widen(uint32_t narrow)
{
	return tsr_f32_from_bf16(narrow);
}

INLINE uint32_t fp16_from(float x, int32_t exponent)
{
	return tsr_f16_from_number_at(x, exponent);
}
INLINE float fp16_round(float x, int32_t exponent)
{
	return tsr_f16_round_at(x, exponent);
}
INLINE uint32_t fp16_from_any(float x)
{
	return tsr_f16_from_number(x);
}
INLINE float fp16_widen(uint32_t narrow)
{
	return tsr_f32_from_f16(narrow);
}

/* --- Loops ------------------------------------------------------------------------------------ */

#define DEFINE_NARROW(fmt) \
	static void trip_##fmt(struct tsr_sweep_strip *s, const struct tsr_codec *codec) \
	{ \
		const int32_t exponent = tsr_exponent_bits(s->x[0]); \
		const float *restrict x = s->x; \
		uint32_t *restrict narrow = s->plane[0]; \
		float *restrict y = s->y; \
\
		(void)codec; \
		for (size_t i = 0; i < N; i++) \
			narrow[i] = fmt##_from(x[i], exponent); \
		for (size_t i = 0; i < N; i++) \
			y[i] = fmt##_widen(narrow[i]); \
	}

#define DEFINE_FLOAT_SPLIT(fmt) \
	static void trip_##fmt##_##fmt(struct tsr_sweep_strip *s, const struct tsr_codec *codec) \
	{ \
		const int32_t exponent = tsr_exponent_bits(s->x[0]); \
		const float *restrict x = s->x; \
		uint32_t *restrict narrow = s->plane[0]; \
		uint32_t *restrict rest = s->plane[1]; \
		float *restrict y = s->y; \
\
		(void)codec; \
		for (size_t i = 0; i < N; i++) { \
			narrow[i] = fmt##_from(x[i], exponent); \
			rest[i] = fmt##_from_any( \
				tsr_float_rest(x[i], fmt##_round(x[i], exponent))); \
		} \
		for (size_t i = 0; i < N; i++) \
			y[i] = tsr_float_join(fmt##_widen(narrow[i]), fmt##_widen(rest[i])); \
	}

#define DEFINE_ULP_SPLIT(fmt, format, id, levels) \
	static void trip_##fmt##_##id(struct tsr_sweep_strip *s, const struct tsr_codec *codec) \
	{ \
		const int32_t exponent = tsr_exponent_bits(s->x[0]); \
		const float *restrict x = s->x; \
		uint32_t *restrict narrow = s->plane[0]; \
		int32_t *restrict correction = (int32_t *)s->plane[1]; \
		float *restrict y = s->y; \
\
		(void)codec; \
		for (size_t i = 0; i < N; i++) { \
			narrow[i] = fmt##_from(x[i], exponent); \
			correction[i] = tsr_ulp_correction(format(), x[i], \
							   fmt##_round(x[i], exponent), levels); \
		} \
		for (size_t i = 0; i < N; i++) \
			y[i] = tsr_ulp_join(format(), fmt##_widen(narrow[i]), correction[i], \
					    levels); \
	}

/* The random bits of a stochastic codec: those of seed 0 and stream 0. */
static void draw(struct tsr_sweep_strip *s)
{
	struct tsr_philox block[N / 8];

	if (s->drawn)
		return;
	for (size_t b = 0; b < N / 8; b++)
		block[b] = tsr_stochastic_bits(0, 0, s->first / 8 + b);
	memcpy(s->random, block, sizeof(block));
	s->drawn = true;
}

#define DEFINE_TRUNCATED(fmt, format, largest) \
	static void trip_##fmt##_trunc(struct tsr_sweep_strip *s, const struct tsr_codec *codec) \
	{ \
		const uint32_t k = codec->extra_bits; \
		const float *restrict x = s->x; \
		uint32_t *restrict narrow = s->plane[0], *restrict extra = s->plane[1]; \
		float *restrict y = s->y; \
\
		for (size_t i = 0; i < N; i++) { \
			const uint32_t e = tsr_##format##_extended(x[i]); \
\
			narrow[i] = tsr_trunc_narrow(x[i], e); \
			extra[i] = tsr_trunc_extra(e, k); \
		} \
		for (size_t i = 0; i < N; i++) \
			y[i] = tsr_f32_from_##format##_extended( \
				narrow[i], tsr_trunc_join(narrow[i], 0, extra[i], k)); \
	} \
\
	static void trip_##fmt##_sr(struct tsr_sweep_strip *s, const struct tsr_codec *codec) \
	{ \
		const uint32_t k = codec->extra_bits, mask = (1u << k) - 1; \
		const float *restrict x = s->x; \
		const uint16_t *restrict random = s->random; \
		uint32_t *restrict narrow = s->plane[0], *restrict stored = s->plane[1]; \
		float *restrict y = s->y; \
\
		draw(s); \
		for (size_t i = 0; i < N; i++) { \
			const uint32_t e = tsr_##format##_extended(x[i]); \
			const uint32_t up = tsr_stochastic_up(e, random[i], largest); \
\
			narrow[i] = tsr_trunc_narrow(x[i], e) + up; \
			stored[i] = tsr_trunc_extra(e, k) | up << k; \
		} \
		for (size_t i = 0; i < N; i++) \
			y[i] = tsr_f32_from_##format##_extended( \
				narrow[i], \
				tsr_trunc_join(narrow[i], stored[i] >> k, stored[i] & mask, k)); \
	}

DEFINE_NARROW(bf16)
DEFINE_NARROW(fp16)
DEFINE_FLOAT_SPLIT(bf16)
DEFINE_FLOAT_SPLIT(fp16)
DEFINE_ULP_SPLIT(bf16, tsr_split_bf16, ulp8, 127.0f)
DEFINE_ULP_SPLIT(bf16, tsr_split_bf16, ulp16, 32767.0f)
DEFINE_ULP_SPLIT(fp16, tsr_split_f16, ulp8, 127.0f)
DEFINE_ULP_SPLIT(fp16, tsr_split_f16, ulp16, 32767.0f)
DEFINE_TRUNCATED(bf16, bf16, TSR_BF16_LARGEST)
DEFINE_TRUNCATED(fp16, f16, TSR_F16_LARGEST)

X_DECLARE_SWEEP(base)
X_DECLARE_SWEEP(avx2)
X_DECLARE_SWEEP(avx512)

const struct tsr_sweep_trip TSR_FOR_ISA(sweep_trips)[] = {
	{ "bf16", trip_bf16 },
	{ "fp16", trip_fp16 },
	{ "bf16+bf16", trip_bf16_bf16 },
	{ "fp16+fp16", trip_fp16_fp16 },
	{ "bf16+ulp8", trip_bf16_ulp8 },
	{ "bf16+ulp16", trip_bf16_ulp16 },
	{ "fp16+ulp8", trip_fp16_ulp8 },
	{ "fp16+ulp16", trip_fp16_ulp16 },
	{ "bf16+trunc<k>", trip_bf16_trunc },
	{ "fp16+trunc<k>", trip_fp16_trunc },
	{ "bf16+sr<k>", trip_bf16_sr },
	{ "fp16+sr<k>", trip_fp16_sr },
	{ NULL, NULL },
};
