/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoding and decoding for sweeps: faster loops of those codecs where it pays.  They use the same
 * formulas, compute once what several codecs share, and pack nothing.
 *
 * Encoding and decoding are two loops with the codes in memory between them: in one loop, the
 * compiler sees that conditions of the two depend on each other and makes branches of them.
 */
#include <string.h>

#include "codec/loops.h"
#include "sweep/kernels.h"
#include "codec/extra_bits_math.h"

#define N TSR_SWEEP_BATCH

/* --- Narrow weights --------------------------------------------------------------------------- */

/* Narrow weights, decoded: the same for every codec that rounds to nearest. */
#define DEFINE_WEIGHTS(format) \
	static const float *format##_weights(struct tsr_sweep_batch *s) \
	{ \
		const float *restrict x = s->x; \
		uint32_t *restrict narrow = s->plane[0]; \
		float *restrict decoded = s->format; \
\
		if (s->has_##format) \
			return decoded; \
		for (size_t i = 0; i < N; i++) \
			narrow[i] = tsr_##format##_from_f32(x[i]); \
		for (size_t i = 0; i < N; i++) \
			decoded[i] = tsr_f32_from_##format(narrow[i]); \
		s->has_##format = true; \
		return decoded; \
	}

DEFINE_WEIGHTS(bf16)
DEFINE_WEIGHTS(f16)

/* The random bits of a stochastic codec: those of seed 0 and stream 0. */
static const uint16_t *random_bits(struct tsr_sweep_batch *s)
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

#define DEFINE_narrow_only(id, format, code) \
	static void trip_##id(struct tsr_sweep_batch *s, const struct tsr_codec *codec) \
	{ \
		(void)codec; \
		memcpy(s->y, format##_weights(s), N * sizeof(*s->y)); \
	}

#define DEFINE_float_split(id, format, code) \
	static void trip_##id(struct tsr_sweep_batch *s, const struct tsr_codec *codec) \
	{ \
		const float *restrict x = s->x, *restrict narrow = format##_weights(s); \
		uint32_t *restrict rest = s->plane[1]; \
		float *restrict y = s->y; \
\
		(void)codec; \
		for (size_t i = 0; i < N; i++) \
			rest[i] = tsr_##format##_from_rest(tsr_float_rest(x[i], narrow[i])); \
		for (size_t i = 0; i < N; i++) \
			y[i] = tsr_float_join(narrow[i], tsr_f32_from_##format(rest[i])); \
	}

#define DEFINE_ulp_split(id, format, code) \
	static void trip_##id(struct tsr_sweep_batch *s, const struct tsr_codec *codec) \
	{ \
		const float *restrict x = s->x, *restrict narrow = format##_weights(s); \
		int32_t *restrict correction = (int32_t *)s->plane[1]; \
		float *restrict y = s->y; \
\
		(void)codec; \
		for (size_t i = 0; i < N; i++) \
			correction[i] = tsr_ulp_correction(tsr_split_##format(), x[i], narrow[i], \
							   TSR_LEVELS(code)); \
		for (size_t i = 0; i < N; i++) \
			y[i] = tsr_ulp_join(tsr_split_##format(), narrow[i], correction[i], \
					    TSR_LEVELS(code)); \
	}

#define DEFINE_extra_bits(id, format, rounding) \
	static void trip_##id(struct tsr_sweep_batch *s, const struct tsr_codec *codec) \
	{ \
		const bool random = rounding == TSR_AT_RANDOM; \
		const uint32_t k = codec->extra_bits, mask = (1u << k) - 1; \
		const float *restrict x = s->x; \
		const uint16_t *restrict draw = random ? random_bits(s) : NULL; \
		uint32_t *restrict narrow = s->plane[0], *restrict stored = s->plane[1]; \
		float *restrict y = s->y; \
\
		for (size_t i = 0; i < N; i++) { \
			const uint32_t exact = tsr_##format##_extended(x[i]); \
			const uint32_t e = rounding != TSR_TO_NEAREST \
						   ? exact \
						   : tsr_extended_nearest( \
							     exact, tsr_##format##_largest(), k); \
			const uint32_t extra = tsr_trunc_extra(e, k); \
			const uint32_t drawn = random ? tsr_stochastic_up( \
								e, draw[i], \
								tsr_##format##_largest()) \
						      : 0; \
			const uint32_t up = rounding == TSR_TO_NEAREST ? tsr_nearest_up(extra, k) \
								       : drawn; \
\
			narrow[i] = tsr_trunc_narrow(TSR_NARROW_SIGN(format), x[i], e) + up; \
			stored[i] = extra | drawn << k; \
		} \
		for (size_t i = 0; i < N; i++) { \
			const uint32_t extra = random ? stored[i] & mask : stored[i]; \
			const uint32_t up = rounding == TSR_TO_NEAREST ? tsr_nearest_up(extra, k) \
					    : random		       ? stored[i] >> k \
								       : 0; \
\
			y[i] = tsr_f32_from_##format##_extended( \
				narrow[i], \
				tsr_trunc_join(TSR_NARROW_SIGN(format), narrow[i], up, extra, k)); \
		} \
	}

/* Codecs without a faster way, or that are never swept: the table has NULL. */
#define DEFINE_exact_split(id, format, code)
#define DEFINE_grouped(id, format, code)
#define DEFINE_logarithmic(id, format, code)
#define DEFINE_packed_peak(id, format, code)
#define DEFINE_packed_rms(id, format, code)
#define DEFINE_packed_log(id, format, code)
#define DEFINE_tabled(id, format, code)
#define DEFINE_expanded(id, format, code)
#define DEFINE_plain(id, format, code)

#define X(id, each, loops, format, code, ...) DEFINE_##loops(id, format, code)
TSR_CODEC_LIST(X)
#undef X

#define TRIP_narrow_only(id) trip_##id,
#define TRIP_float_split(id) trip_##id,
#define TRIP_ulp_split(id) trip_##id,
#define TRIP_extra_bits(id) trip_##id,
#define TRIP_exact_split(id) NULL,
#define TRIP_grouped(id) NULL,
#define TRIP_logarithmic(id) NULL,
#define TRIP_packed_peak(id) NULL,
#define TRIP_packed_rms(id) NULL,
#define TRIP_packed_log(id) NULL,
#define TRIP_tabled(id) NULL,
#define TRIP_expanded(id) NULL,
#define TRIP_plain(id) NULL,

#define X(id, each, loops, ...) TRIP_##loops(id)
tsr_sweep_trip_fn *const TSR_FOR_ISA(sweep_trips)[] = { NULL, TSR_CODEC_LIST(X) };
