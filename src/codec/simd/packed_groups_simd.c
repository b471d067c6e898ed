/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Momenta in codes of k bits, packed so that 32 elements share k words, with a scale per group: the largest
 * magnitude, or the root mean square.
 */
#include "codec/group_math.h"
#include "codec/loops.h"
#include "codec/simd/absmax.h"
#include "codec/simd/bit_packing.h"

#define INLINE static inline __attribute__((always_inline))

#define PEAK_packed_peak group_absmax
#define PEAK_packed_rms group_rms

INLINE float group_rms(const float *x, size_t n)
{
	const float absmax = group_absmax(x, n);
	uint32_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += tsr_square_share(x[i], absmax);
	return tsr_root_mean_square(absmax, sum, (uint32_t)n);
}

/* Store the scale of group @g; returns it as it is stored. */
INLINE float put_scale(const struct tsr_coding *coding, void *scales, size_t g, float scale,
		       struct tsr_encode_report *report)
{
	const uint32_t entry = tsr_scale_entry(coding->scale, scale, TSR_E8M8_MAX);

	tsr_scale_put(coding->scale, scales, g, entry);
	report->scale_overflow += tsr_scale_overflows(coding->scale, scale, entry);
	return tsr_scale_value(coding->scale, entry);
}

INLINE float get_scale(const struct tsr_coding *coding, const void *scales, size_t g)
{
	return tsr_scale_value(coding->scale, tsr_scale_get(coding->scale, scales, g));
}

#define FEW_BITS 4

/* The signed code in the lowest bits. */
INLINE int32_t signed_code(uint32_t value, const unsigned bits)
{
	return (int32_t)(value << (32 - bits)) >> (32 - bits);
}

#define X(id, each, loops, format, bits, ...) \
	/* At most PACKING_BATCH elements of a group, and zeros to the end of a share. */ \
	INLINE void encode_batch_##id(const float *restrict x, size_t n, float unit, float factor, \
				      unsigned char *word) \
	{ \
		const struct tsr_bounds bounds = tsr_##format##_bounds(); \
		union packing batch; \
\
		for (size_t i = 0; i < n; i++) \
			batch.value[i] = (uint32_t)tsr_##format##_code_in(bounds, x[i] * unit, \
									  factor) & \
					 ((1u << bits) - 1); \
		for (size_t i = n; i % SHARE; i++) \
			batch.value[i] = 0; \
		pack_batch(&batch, (n + SHARE - 1) / SHARE, word, bits); \
	} \
\
	/* Of few bits, @level has the values for a scale of 1. */ \
	INLINE void decode_batch_##id(const unsigned char *word, size_t n, const float *level, \
				      float scale, float *restrict x) \
	{ \
		union packing batch; \
\
		unpack_batch(&batch, (n + SHARE - 1) / SHARE, word, bits); \
		for (size_t i = 0; i < n; i++) \
			x[i] = bits <= FEW_BITS \
				       ? scale * level[batch.value[i]] \
				       : tsr_##format##_value( \
						 (float)signed_code(batch.value[i], bits), scale); \
	} \
\
	void TSR_FOR_ISA(encode_##id)(const struct tsr_coding *coding, const float *restrict x, \
				      size_t n, void *const plane[], \
				      struct tsr_encode_report *report) \
	{ \
		for (size_t first = 0, g = 0; first < n; first += coding->group, g++) { \
			const size_t end = n - first < coding->group ? n : first + coding->group; \
			const float peak = PEAK_##loops(x + first, end - first); \
			const float scale = put_scale(coding, plane[1], g, peak, report); \
			const float unit = tsr_##format##_unit(scale); \
			const float factor = tsr_##format##_factor(scale); \
\
			for (size_t i = first; i < end; i += PACKING_BATCH) \
				encode_batch_##id( \
					x + i, end - i < PACKING_BATCH ? end - i : PACKING_BATCH, \
					unit, factor, (unsigned char *)plane[0] + i / 8 * bits); \
		} \
	} \
\
	void TSR_FOR_ISA(decode_##id)(const struct tsr_coding *coding, const void *const plane[], \
				      size_t n, float *restrict x) \
	{ \
		float level[1u << FEW_BITS]; \
\
		for (uint32_t c = 0; bits <= FEW_BITS && c < 1u << bits; c++) \
			level[c] = tsr_##format##_value((float)signed_code(c, bits), 1.0f); \
		for (size_t first = 0, g = 0; first < n; first += coding->group, g++) { \
			const size_t end = n - first < coding->group ? n : first + coding->group; \
			const float scale = get_scale(coding, plane[1], g); \
\
			for (size_t i = first; i < end; i += PACKING_BATCH) \
				decode_batch_##id((const unsigned char *)plane[0] + i / 8 * bits, \
						  end - i < PACKING_BATCH ? end - i \
									  : PACKING_BATCH, \
						  level, scale, x + i); \
		} \
	}
TSR_PACKED_GROUP_LIST(X)
