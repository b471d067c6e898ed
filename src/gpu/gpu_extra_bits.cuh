/* SPDX-License-Identifier: Apache-2.0 */
/* Truncated splits, for kernels: an element at a time. */
#ifndef TSR_GPU_EXTRA_BITS_CUH
#define TSR_GPU_EXTRA_BITS_CUH

#include "gpu/gpu_split.cuh"

#define EXTRA_BITS_DRAWS 8u /* elements that share tsr_stochastic_bits() */

/* The random bits of one of EXTRA_BITS_DRAWS elements. */
static __device__ __forceinline__ uint32_t draw_of(struct tsr_philox random, unsigned i)
{
	return random.word[i / 2] >> (i % 2 * 16) & 0xffffu;
}

/* A narrow weight and what is stored of the bits behind it. */
struct extended {
	uint32_t narrow, bits;
};

template <class format, bool RANDOM>
static __device__ __forceinline__ struct extended encode_extra(float x, uint32_t k, uint32_t draw)
{
	const uint32_t e = format::extended(x);
	const uint32_t up = RANDOM ? tsr_stochastic_up(e, draw, format::largest()) : 0;
	const struct extended out = { tsr_trunc_narrow(x, e) + up,
				      tsr_trunc_extra(e, k) | up << k };

	return out;
}

template <class format, bool RANDOM>
static __device__ __forceinline__ float decode_extra(struct extended in, uint32_t k)
{
	const uint32_t up = RANDOM ? in.bits >> k : 0;
	const uint32_t extra = RANDOM ? in.bits & ((1u << k) - 1) : in.bits;

	return format::from_extended(in.narrow, tsr_trunc_join(in.narrow, up, extra, k));
}

#endif
