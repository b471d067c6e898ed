/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits with extra bits: a narrow weight and the significand bits that follow it, packed so that 32
 * elements of k bits share k words ("extra bits": the paper's Figure 1).  With stochastic rounding
 * one more bit says whether the narrow weight was rounded up, so that it can be undone; rounding to
 * nearest is undone by the first of the bits.
 */
#include <string.h>

#include "codec/loops.h"
#include "codec/extra_bits_math.h"
#include "codec/simd/bit_packing.h"

#define EACH_WIDTH(X) TSR_EACH_16(X, ) X(17, )

/* --- Bit packing ----------------------------------------------------------------------------- */

#define X(bits, ...) \
	static void pack##bits(union packing *b, size_t nshares, unsigned char *word) \
	{ \
		pack_batch(b, nshares, word, bits); \
	} \
	static void unpack##bits(union packing *b, size_t nshares, const unsigned char *word) \
	{ \
		unpack_batch(b, nshares, word, bits); \
	}
EACH_WIDTH(X)
#undef X

typedef void pack_fn(union packing *b, size_t nshares, unsigned char *word);
typedef void unpack_fn(union packing *b, size_t nshares, const unsigned char *word);

#define X(bits, ...) pack##bits,
static pack_fn *const pack_by_bits[] = { NULL, EACH_WIDTH(X) };
#undef X
#define X(bits, ...) unpack##bits,
static unpack_fn *const unpack_by_bits[] = { NULL, EACH_WIDTH(X) };
#undef X

/* --- Encoding and decoding-------------------------------------------------------------------- */

/* The random bits of @n elements from @first on, a multiple of 8; @n is rounded up to one. */
static void draw(const struct tsr_coding *coding, uint64_t first, size_t n, uint16_t *random)
{
	struct tsr_philox block[PACKING_BATCH / 8];
	const size_t nblocks = (n + 7) / 8;

	for (size_t b = 0; b < nblocks; b++)
		block[b] = tsr_stochastic_bits(coding->seed, coding->stream, first / 8 + b);
	memcpy(random, block, nblocks * sizeof(*block));
}

/* The rounding is a constant in each. */
static inline uint32_t up_of(int rounding, uint32_t extra, uint32_t k, uint32_t random)
{
	return rounding == TSR_AT_RANDOM    ? random
	       : rounding == TSR_TO_NEAREST ? tsr_nearest_up(extra, k)
					    : 0;
}

#define X(id, each, loops, format, rounding, ...) \
	void TSR_FOR_ISA(encode_##id)(const struct tsr_coding *coding, const float *restrict x, \
				      size_t n, void *const plane[], \
				      struct tsr_encode_report *report) \
	{ \
		const bool random = rounding == TSR_AT_RANDOM; \
		const uint32_t k = coding->codec->extra_bits, bits = k + random; \
		tsr_##format##_pattern *restrict narrow = plane[0]; \
		unsigned char *restrict word = plane[1]; \
		union packing stored; \
		uint16_t draws[PACKING_BATCH]; \
\
		(void)report; \
		for (size_t first = 0; first < n; first += PACKING_BATCH) { \
			const size_t left = n - first < PACKING_BATCH ? n - first : PACKING_BATCH; \
			const size_t nshares = (left + SHARE - 1) / SHARE; \
\
			if (random) \
				draw(coding, coding->first + first, left, draws); \
			for (size_t i = 0; i < left; i++) { \
				const uint32_t exact = tsr_##format##_extended(x[first + i]); \
				const uint32_t e = rounding != TSR_TO_NEAREST \
							   ? exact \
							   : tsr_extended_nearest( \
								     exact, \
								     tsr_##format##_largest(), k); \
				const uint32_t drawn = random ? tsr_stochastic_up( \
									e, draws[i], \
									tsr_##format##_largest()) \
							      : 0; \
				const uint32_t extra = tsr_trunc_extra(e, k); \
				const uint32_t up = up_of(rounding, extra, k, drawn); \
				const uint32_t w = tsr_trunc_narrow(TSR_NARROW_SIGN(format), \
								    x[first + i], e); \
\
				narrow[first + i] = (tsr_##format##_pattern)(w + up); \
				stored.value[i] = extra | drawn << k; \
			} \
			for (size_t i = left; i < nshares * SHARE; i++) \
				stored.value[i] = 0; \
			pack_by_bits[bits](&stored, nshares, word + first / 8 * bits); \
		} \
	} \
\
	void TSR_FOR_ISA(decode_##id)(const struct tsr_coding *coding, const void *const plane[], \
				      size_t n, float *restrict x) \
	{ \
		const bool random = rounding == TSR_AT_RANDOM; \
		const uint32_t k = coding->codec->extra_bits, bits = k + random; \
		const uint32_t mask = (1u << k) - 1; \
		const tsr_##format##_pattern *restrict narrow = plane[0]; \
		const unsigned char *restrict word = plane[1]; \
		union packing stored; \
\
		for (size_t first = 0; first < n; first += PACKING_BATCH) { \
			const size_t left = n - first < PACKING_BATCH ? n - first : PACKING_BATCH; \
\
			unpack_by_bits[bits](&stored, (left + SHARE - 1) / SHARE, \
					     word + first / 8 * bits); \
			for (size_t i = 0; i < left; i++) { \
				const uint32_t w = narrow[first + i], s = stored.value[i]; \
				const uint32_t up = up_of(rounding, s, k, s >> k); \
\
				x[first + i] = tsr_f32_from_##format##_extended( \
					w, tsr_trunc_join(TSR_NARROW_SIGN(format), w, up, \
							  random ? s & mask : s, k)); \
			} \
		} \
	}
TSR_PACKED_LIST(X)
