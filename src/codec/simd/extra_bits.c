/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Truncated split: a narrow weight and the significand bits that follow it, packed so that 32
 * elements of k bits share k words ("extra bits": the paper's Figure 1).  With stochastic rounding
 * one more bit says whether the narrow weight was rounded up, so that it can be undone.
 */
#include <string.h>

#include "codec/isa.h"
#include "codec/extra_bits_math.h"

#define INLINE static inline __attribute__((always_inline))
#define RUN TSR_BIT_PACKED_RUN

/* Elements whose extra bits are unpacked at a time: they stay in the L1 cache. */
#define BATCH 512
#define BITS_MAX 17

/* --- Bit packing ----------------------------------------------------------------------------- */

/*
 * Value i of a run takes bits i * bits and up of its words, the lowest first.  First two values
 * become one of twice the bits, in SIMD lanes of 64 bits; those are then strung together.  `bits`
 * is a constant in the functions below, so that all shifts are.
 */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* What is unpacked of a batch: values, or pairs of them, the first in the low bits. */
union batch {
	uint32_t value[BATCH];
	uint64_t pair[BATCH / 2];
};

INLINE void pack_run(const uint64_t *pair, unsigned char *word, const unsigned bits)
{
	uint64_t held = 0;
	unsigned nheld = 0;

	UNROLL
	for (unsigned i = 0; i < RUN / 2; i++) {
		held |= pair[i] << nheld;
		nheld += bits;
		if (nheld < 64)
			continue;
		memcpy(word, &held, 8);
		word += 8;
		nheld -= 64;
		held = nheld ? pair[i] >> (bits - nheld) : 0;
	}
	if (nheld)
		memcpy(word, &held, 4);
}

INLINE void unpack_run(const unsigned char *word, uint64_t *pair, const unsigned bits)
{
	const uint64_t mask = (UINT64_C(1) << bits) - 1;
	unsigned left = RUN / 2 * bits, nheld = 0;
	uint64_t held = 0;

	UNROLL
	for (unsigned i = 0; i < RUN / 2; i++) {
		const unsigned have = nheld;

		pair[i] = held;
		if (have < bits) {
			nheld = left < 64 ? left : 64;
			left -= nheld;
			held = 0;
			memcpy(&held, word, nheld / 8);
			word += nheld / 8;
			pair[i] |= held << have;
			held >>= bits - have;
			nheld -= bits - have;
		} else {
			held >>= bits;
			nheld -= bits;
		}
		pair[i] &= mask;
	}
}

INLINE void pack_runs(union batch *restrict b, size_t nruns, unsigned char *restrict word,
		      const unsigned bits)
{
	for (size_t i = 0; i < nruns * (RUN / 2); i++)
		b->pair[i] = (b->pair[i] & UINT32_MAX) | b->pair[i] >> 32 << bits;
	for (size_t r = 0; r < nruns; r++)
		pack_run(b->pair + RUN / 2 * r, word + 4 * bits * r, 2 * bits);
}

INLINE void unpack_runs(union batch *restrict b, size_t nruns, const unsigned char *restrict word,
			const unsigned bits)
{
	const uint64_t mask = (UINT64_C(1) << bits) - 1;

	for (size_t r = 0; r < nruns; r++)
		unpack_run(word + 4 * bits * r, b->pair + RUN / 2 * r, 2 * bits);
	for (size_t i = 0; i < nruns * (RUN / 2); i++)
		b->pair[i] = (b->pair[i] & mask) | b->pair[i] >> bits << 32;
}

#define X_PACK(bits) \
	static void pack##bits(union batch *b, size_t nruns, unsigned char *word) \
	{ \
		pack_runs(b, nruns, word, bits); \
	} \
	static void unpack##bits(union batch *b, size_t nruns, const unsigned char *word) \
	{ \
		unpack_runs(b, nruns, word, bits); \
	}
TSR_1_TO_16(X_PACK, )
X_PACK(17)

typedef void pack_fn(union batch *b, size_t nruns, unsigned char *word);
typedef void unpack_fn(union batch *b, size_t nruns, const unsigned char *word);

#define X_PACK_NAME(bits) pack##bits,
#define X_UNPACK_NAME(bits) unpack##bits,
static pack_fn *const pack_by_bits[BITS_MAX + 1] = { NULL, TSR_1_TO_16(X_PACK_NAME, ) pack17 };
static unpack_fn *const unpack_by_bits[BITS_MAX + 1] = { NULL,
							 TSR_1_TO_16(X_UNPACK_NAME, ) unpack17 };

/* --- Runs of elements ------------------------------------------------------------------------ */

/* The random bits of @n elements from @first on, a multiple of 8; @n is rounded up to one. */
static void draw(const struct tsr_coding *coding, uint64_t first, size_t n, uint16_t *random)
{
	struct tsr_philox block[BATCH / 8];
	const size_t nblocks = (n + 7) / 8;

	for (size_t b = 0; b < nblocks; b++)
		block[b] = tsr_stochastic_bits(coding->seed, coding->stream, first / 8 + b);
	memcpy(random, block, nblocks * sizeof(*block));
}

#define DEFINE_RUNS(format, from_extended, largest) \
	static void encode_##format##_trunc(const struct tsr_coding *coding, \
					    const float *restrict x, size_t n, \
					    void *const plane[], struct tsr_encode_report *report) \
	{ \
		const uint32_t k = coding->codec->extra_bits; \
		uint16_t *restrict narrow = plane[0]; \
		unsigned char *restrict word = plane[1]; \
		union batch extra; \
\
		(void)report; \
		for (size_t first = 0; first < n; first += BATCH) { \
			const size_t left = n - first < BATCH ? n - first : BATCH; \
			const size_t nruns = (left + RUN - 1) / RUN; \
\
			for (size_t i = 0; i < left; i++) { \
				const uint32_t e = tsr_##format##_extended(x[first + i]); \
\
				narrow[first + i] = (uint16_t)tsr_trunc_narrow(x[first + i], e); \
				extra.value[i] = tsr_trunc_extra(e, k); \
			} \
			for (size_t i = left; i < nruns * RUN; i++) \
				extra.value[i] = 0; \
			pack_by_bits[k](&extra, nruns, word + first / 8 * k); \
		} \
	} \
\
	static void decode_##format##_trunc(const struct tsr_coding *coding, \
					    const void *const plane[], size_t n, \
					    float *restrict x) \
	{ \
		const uint32_t k = coding->codec->extra_bits; \
		const uint16_t *restrict narrow = plane[0]; \
		const unsigned char *restrict word = plane[1]; \
		union batch extra; \
\
		for (size_t first = 0; first < n; first += BATCH) { \
			const size_t left = n - first < BATCH ? n - first : BATCH; \
\
			unpack_by_bits[k](&extra, (left + RUN - 1) / RUN, word + first / 8 * k); \
			for (size_t i = 0; i < left; i++) { \
				const uint32_t w = narrow[first + i]; \
\
				x[first + i] = from_extended( \
					w, tsr_trunc_join(w, 0, extra.value[i], k)); \
			} \
		} \
	} \
\
	static void encode_##format##_sr(const struct tsr_coding *coding, const float *restrict x, \
					 size_t n, void *const plane[], \
					 struct tsr_encode_report *report) \
	{ \
		const uint32_t k = coding->codec->extra_bits; \
		uint16_t *restrict narrow = plane[0]; \
		unsigned char *restrict word = plane[1]; \
		union batch stored; \
		uint16_t random[BATCH]; \
\
		(void)report; \
		for (size_t first = 0; first < n; first += BATCH) { \
			const size_t left = n - first < BATCH ? n - first : BATCH; \
			const size_t nruns = (left + RUN - 1) / RUN; \
\
			draw(coding, coding->first + first, left, random); \
			for (size_t i = 0; i < left; i++) { \
				const uint32_t e = tsr_##format##_extended(x[first + i]); \
				const uint32_t up = tsr_stochastic_up(e, random[i], largest); \
\
				narrow[first + i] = (uint16_t)(tsr_trunc_narrow(x[first + i], e) + \
							       up); \
				stored.value[i] = tsr_trunc_extra(e, k) | up << k; \
			} \
			for (size_t i = left; i < nruns * RUN; i++) \
				stored.value[i] = 0; \
			pack_by_bits[k + 1](&stored, nruns, word + first / 8 * (k + 1)); \
		} \
	} \
\
	static void decode_##format##_sr(const struct tsr_coding *coding, \
					 const void *const plane[], size_t n, float *restrict x) \
	{ \
		const uint32_t k = coding->codec->extra_bits, mask = (1u << k) - 1; \
		const uint16_t *restrict narrow = plane[0]; \
		const unsigned char *restrict word = plane[1]; \
		union batch stored; \
\
		for (size_t first = 0; first < n; first += BATCH) { \
			const size_t left = n - first < BATCH ? n - first : BATCH; \
\
			unpack_by_bits[k + 1](&stored, (left + RUN - 1) / RUN, \
					      word + first / 8 * (k + 1)); \
			for (size_t i = 0; i < left; i++) { \
				const uint32_t w = narrow[first + i]; \
				const uint32_t extra = stored.value[i] & mask; \
\
				x[first + i] = from_extended( \
					w, tsr_trunc_join(w, stored.value[i] >> k, extra, k)); \
			} \
		} \
	}

DEFINE_RUNS(bf16, tsr_f32_from_bf16_extended, TSR_BF16_LARGEST)
DEFINE_RUNS(f16, tsr_f32_from_f16_extended, TSR_F16_LARGEST)

/* --- The codecs ------------------------------------------------------------------------------ */

#define DEFINE_CODEC(id, format, kind, text, narrow_dtype, k, random, about) \
	const struct tsr_codec TSR_FOR_ISA(id) = { \
		.name = text #k, \
		.summary = about, \
		.source = "extra-bits paper", \
		.family = text "<k>", \
		.kinds = TSR_KIND_WEIGHT, \
		.nplanes = 2, \
		.planes = { { "", TSR_PER_ELEMENT, narrow_dtype }, \
			    { "::extra_bits", TSR_BIT_PACKED, TSR_U32 } }, \
		.stochastic = random, \
		.lossless = k == 16, \
		.extra_bits = k, \
		.encode = encode_##format##_##kind, \
		.decode = decode_##format##_##kind, \
	};

#define X_BF16_TRUNC(k) \
	DEFINE_CODEC(codec_bf16_trunc##k, bf16, trunc, "bf16+trunc", TSR_BF16, k, false, \
		     "BF16 toward zero and the next k bits")
#define X_FP16_TRUNC(k) \
	DEFINE_CODEC(codec_fp16_trunc##k, f16, trunc, "fp16+trunc", TSR_F16, k, false, \
		     "FP16 toward zero and the next k bits")
#define X_BF16_SR(k) \
	DEFINE_CODEC(codec_bf16_sr##k, bf16, sr, "bf16+sr", TSR_BF16, k, true, \
		     "BF16 rounded at random, k bits, 1 to undo it")
#define X_FP16_SR(k) \
	DEFINE_CODEC(codec_fp16_sr##k, f16, sr, "fp16+sr", TSR_F16, k, true, \
		     "FP16 rounded at random, k bits, 1 to undo it")

TSR_1_TO_16(X_BF16_TRUNC, )
TSR_1_TO_13(X_FP16_TRUNC, )
TSR_1_TO_16(X_BF16_SR, )
TSR_1_TO_13(X_FP16_SR, )
