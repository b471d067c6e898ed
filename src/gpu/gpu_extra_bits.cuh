/* SPDX-License-Identifier: Apache-2.0 */
/* Splits with extra bits, for kernels: an element at a time. */
#ifndef TSR_GPU_EXTRA_BITS_CUH
#define TSR_GPU_EXTRA_BITS_CUH

#include "codec/extra_bits_math.h"

#define EXTRA_BITS_DRAWS 8u /* elements that share tsr_stochastic_bits() */

/* The random bits of one of EXTRA_BITS_DRAWS elements. */
static __device__ __forceinline__ uint32_t draw_of(struct tsr_philox random, unsigned i)
{
	return random.word[i / 2] >> (i % 2 * 16) & 0xffffu;
}

/* What the narrow formats differ in, from the formulas of extra_bits_math.h. */
#define EXTENDED_FORMULAS(id) \
	struct id##_extended { \
		typedef tsr_##id##_pattern pattern; \
		static const uint32_t sign = TSR_NARROW_SIGN(id); \
		static __device__ __forceinline__ uint32_t of(float x) \
		{ \
			return tsr_##id##_extended(x); \
		} \
		static __device__ __forceinline__ float value(uint32_t narrow, uint32_t extended) \
		{ \
			return tsr_f32_from_##id##_extended(narrow, extended); \
		} \
		static __device__ __forceinline__ uint32_t largest(void) \
		{ \
			return tsr_##id##_largest(); \
		} \
	};

EXTENDED_FORMULAS(bf16)
EXTENDED_FORMULAS(f16)
EXTENDED_FORMULAS(e5m2)
EXTENDED_FORMULAS(e4m3)

/* A narrow weight and what is stored of the bits behind it. */
struct extended {
	uint32_t narrow, bits;
};

template <class format, int ROUNDING>
static __device__ __forceinline__ uint32_t up_of(uint32_t extra, uint32_t k, uint32_t random)
{
	return ROUNDING == TSR_AT_RANDOM    ? random
	       : ROUNDING == TSR_TO_NEAREST ? tsr_nearest_up(extra, k)
					    : 0;
}

template <class format, int ROUNDING>
static __device__ __forceinline__ struct extended encode_extra(float x, uint32_t k, uint32_t draw)
{
	const uint32_t exact = format::of(x);
	const uint32_t e = ROUNDING == TSR_TO_NEAREST
				   ? tsr_extended_nearest(exact, format::largest(), k)
				   : exact;
	const uint32_t drawn = ROUNDING == TSR_AT_RANDOM
				       ? tsr_stochastic_up(e, draw, format::largest())
				       : 0;
	const uint32_t extra = tsr_trunc_extra(e, k);
	const struct extended out = { tsr_trunc_narrow(format::sign, x, e) +
					      up_of<format, ROUNDING>(extra, k, drawn),
				      extra | drawn << k };

	return out;
}

template <class format, int ROUNDING>
static __device__ __forceinline__ float decode_extra(struct extended in, uint32_t k)
{
	const uint32_t up = up_of<format, ROUNDING>(in.bits, k, in.bits >> k);
	const uint32_t extra = ROUNDING == TSR_AT_RANDOM ? in.bits & ((1u << k) - 1) : in.bits;

	return format::value(in.narrow, tsr_trunc_join(format::sign, in.narrow, up, extra, k));
}

#endif
