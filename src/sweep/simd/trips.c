/* SPDX-License-Identifier: Apache-2.0 */
/*
 * There and back: the codecs whose formulas are worth loops of their own.  The formulas are those of
 * math.h; what several codecs have in common is computed once, and nothing is packed on the way.
 *
 * Encoding and decoding are two loops with the codes in memory between them: in one, the compiler
 * sees that conditions of the two depend on each other and makes branches of them.
 */
#include <string.h>

#include "codec/isa.h"
#include "sweep/kernels.h"
#include "codec/extra_bits_math.h"

#define N TSR_SWEEP_STRIP

/* --- Narrow weights --------------------------------------------------------------------------- */

/* Narrow weights there and back, which are the same for every codec that rounds to nearest. */
#define DEFINE_WEIGHTS(fmt, encode, decode) \
	static const float *fmt##_weights(struct tsr_sweep_strip *s) \
	{ \
		const float *restrict x = s->x; \
		uint32_t *restrict narrow = s->plane[0]; \
		float *restrict decoded = s->fmt; \
\
		if (s->has_##fmt) \
			return decoded; \
		for (size_t i = 0; i < N; i++) \
			narrow[i] = encode(x[i]); \
		for (size_t i = 0; i < N; i++) \
			decoded[i] = decode(narrow[i]); \
		s->has_##fmt = true; \
		return decoded; \
	}

DEFINE_WEIGHTS(bf16, tsr_bf16_from_f32, tsr_f32_from_bf16)
DEFINE_WEIGHTS(fp16, tsr_f16_from_f32, tsr_f32_from_f16)

/* The random bits of a stochastic codec: those of seed 0 and stream 0. */
static const uint16_t *random_bits(struct tsr_sweep_strip *s)
{
	struct tsr_philox block[N / 8];

	if (s->has_random)
		return s->random;
	for (size_t b = 0; b < N / 8; b++)
		block[b] = tsr_stochastic_bits(0, 0, s->first / 8 + b);
	memcpy(s->random, block, sizeof(block));
	s->has_random = true;
	return s->random;
}

/* --- Codecs ----------------------------------------------------------------------------------- */

#define DEFINE_NARROW(fmt) \
	static void trip_##fmt(struct tsr_sweep_strip *s, const struct tsr_codec *codec) \
	{ \
		(void)codec; \
		memcpy(s->y, fmt##_weights(s), N * sizeof(*s->y)); \
	}

#define DEFINE_FLOAT_SPLIT(fmt, narrow_of, widen) \
	static void trip_##fmt##_##fmt(struct tsr_sweep_strip *s, const struct tsr_codec *codec) \
	{ \
		const float *restrict x = s->x, *restrict narrow = fmt##_weights(s); \
		uint32_t *restrict rest = s->plane[1]; \
		float *restrict y = s->y; \
\
		(void)codec; \
		for (size_t i = 0; i < N; i++) \
			rest[i] = narrow_of(tsr_float_rest(x[i], narrow[i])); \
		for (size_t i = 0; i < N; i++) \
			y[i] = tsr_float_join(narrow[i], widen(rest[i])); \
	}

#define DEFINE_ULP_SPLIT(fmt, format, id, levels) \
	static void trip_##fmt##_##id(struct tsr_sweep_strip *s, const struct tsr_codec *codec) \
	{ \
		const float *restrict x = s->x, *restrict narrow = fmt##_weights(s); \
		int32_t *restrict correction = (int32_t *)s->plane[1]; \
		float *restrict y = s->y; \
\
		(void)codec; \
		for (size_t i = 0; i < N; i++) \
			correction[i] = tsr_ulp_correction(format(), x[i], narrow[i], levels); \
		for (size_t i = 0; i < N; i++) \
			y[i] = tsr_ulp_join(format(), narrow[i], correction[i], levels); \
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
		const uint16_t *restrict random = random_bits(s); \
		uint32_t *restrict narrow = s->plane[0], *restrict stored = s->plane[1]; \
		float *restrict y = s->y; \
\
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
DEFINE_FLOAT_SPLIT(bf16, tsr_bf16_from_f32, tsr_f32_from_bf16)
DEFINE_FLOAT_SPLIT(fp16, tsr_f16_from_small_f32, tsr_f32_from_f16)
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
