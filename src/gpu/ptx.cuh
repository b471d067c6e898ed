/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_GPU_PTX_CUH
#define TSR_GPU_PTX_CUH

/*
 * The instructions that have no name in CUDA C++.  tests/gpu/emulate has them for the CPU.
 */
#include <stdint.h>

/* Within 1 ULP of 1/d, for d and 1/d normal; one instruction. */
static __device__ __forceinline__ float tsr_reciprocal_estimate(float d)
{
	float r;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
	return r;
}

/* Within 2^-22.9 of 1 / sqrt(x), relatively. */
static __device__ __forceinline__ float tsr_rsqrt_estimate(float x)
{
	float r;

	asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
	return r;
}

/* The larger one, or NaN if any is NaN; one instruction, which takes magnitudes too. */
static __device__ __forceinline__ float tsr_max_or_nan(float a, float b)
{
	float max;

	asm("max.NaN.f32 %0, %1, %2;" : "=f"(max) : "f"(a), "f"(b));
	return max;
}

/* The bits of two numbers rounded to BF16 or FP16, @low in the lower half; none is NaN. */
static __device__ __forceinline__ uint32_t tsr_bf16_pair(float low, float high)
{
	uint32_t pair;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
	return pair;
}

static __device__ __forceinline__ uint32_t tsr_f16_pair(float low, float high)
{
	uint32_t pair;

	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
	return pair;
}

/* tsr_f32_from_f16() of what is not NaN. */
static __device__ __forceinline__ float tsr_f16_widen(uint32_t narrow)
{
	float x;

	asm("{ .reg .f16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }"
	    : "=f"(x)
	    : "h"((unsigned short)narrow));
	return x;
}

#endif
