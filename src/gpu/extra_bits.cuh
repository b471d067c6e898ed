/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_GPU_EXTRA_BITS_CUH
#define TSR_GPU_EXTRA_BITS_CUH

/* Truncated splits, for kernels: an element at a time. */
#include "codec/extra_bits_math.h"

#define EXTRA_BITS_DRAWS 8u /* elements that share tsr_stochastic_bits() */

struct bf16_bits {
	static __device__ __forceinline__ uint32_t largest(void)
	{
		return tsr_bf16_largest();
	}

	static __device__ __forceinline__ uint32_t extended(float x)
	{
		return tsr_bf16_extended(x);
	}
	static __device__ __forceinline__ float value(uint32_t narrow, uint32_t extended)
	{
		return tsr_f32_from_bf16_extended(narrow, extended);
	}
};

struct fp16_bits {
	static __device__ __forceinline__ uint32_t largest(void)
	{
		return tsr_f16_largest();
	}

	static __device__ __forceinline__ uint32_t extended(float x)
	{
		return tsr_f16_extended(x);
	}
	static __device__ __forceinline__ float value(uint32_t narrow, uint32_t extended)
	{
		return tsr_f32_from_f16_extended(narrow, extended);
	}
};

/* A narrow weight and what is stored of the bits behind it. */
struct extra_bits {
	uint32_t narrow, bits;
};

/* The random bits of one of EXTRA_BITS_DRAWS elements. */
static __device__ __forceinline__ uint32_t draw_of(struct tsr_philox random, unsigned i)
{
	return random.word[i / 2] >> (i % 2 * 16) & 0xffffu;
}

template <class format, bool RANDOM>
static __device__ __forceinline__ struct extra_bits encode_extra(float x, uint32_t k, uint32_t draw)
{
	const uint32_t e = format::extended(x);
	const uint32_t up = RANDOM ? tsr_stochastic_up(e, draw, format::largest()) : 0;
	const struct extra_bits out = { tsr_trunc_narrow(x, e) + up,
					tsr_trunc_extra(e, k) | up << k };

	return out;
}

template <class format, bool RANDOM>
static __device__ __forceinline__ float decode_extra(struct extra_bits in, uint32_t k)
{
	const uint32_t up = RANDOM ? in.bits >> k : 0;
	const uint32_t extra = RANDOM ? in.bits & ((1u << k) - 1) : in.bits;

	return format::value(in.narrow, tsr_trunc_join(in.narrow, up, extra, k));
}

#endif
