/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instructions that have no name in CUDA C++.  tests/gpu/emulate has them for the CPU.
 */
#ifndef TSR_GPU_PTX_CUH
#define TSR_GPU_PTX_CUH

#include <stdint.h>

#include "codec/math.h"

#define DEFINE_ESTIMATE(name, instruction) \
	static __device__ __forceinline__ float tsr_##name##_estimate(float x) \
	{ \
		float r; \
\
		asm(instruction " %0, %1;" : "=f"(r) : "f"(x)); \
		return r; \
	}

/* Within 1 ULP of 1/d, for d and 1/d normal; one instruction. */
DEFINE_ESTIMATE(reciprocal, "rcp.approx.ftz.f32")

/* Within 2^-22.9 of 1 / sqrt(x), relatively. */
DEFINE_ESTIMATE(rsqrt, "rsqrt.approx.ftz.f32")

/* Within 2^-22 of log2(x) from 1/2 to 2, of other normal x within that share of it; others count as 0. */
DEFINE_ESTIMATE(log2, "lg2.approx.ftz.f32")

/* Within 2^-22 of 2^x, relatively, for results that are normal; one instruction. */
DEFINE_ESTIMATE(exp2, "ex2.approx.ftz.f32")

/* a b + c, or the nearer of 0 and 1; 0 for a NaN.  One instruction. */
static __device__ __forceinline__ float tsr_fma_from_0_to_1(float a, float b, float c)
{
	float sum;

	asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
	return sum;
}

/* The larger one, or NaN if any is NaN; one instruction, which takes magnitudes too. */
static __device__ __forceinline__ float tsr_max_or_nan(float a, float b)
{
	float max;

	asm("max.NaN.f32 %0, %1, %2;" : "=f"(max) : "f"(a), "f"(b));
	return max;
}

/* The bits of two numbers rounded to BF16 or FP16, @low in the lower half; of a NaN some NaN. */
static __device__ __forceinline__ uint32_t tsr_bf16_pair(float low, float high)
{
	uint32_t pair;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
	return pair;
}

/* Of two pairs of BF16 without signs the smaller ones, and the larger ones; NaN is larger. */
static __device__ __forceinline__ uint32_t tsr_bf16_pair_min(uint32_t a, uint32_t b)
{
	uint32_t min;

	asm("min.bf16x2 %0, %1, %2;" : "=r"(min) : "r"(a), "r"(b));
	return min;
}

static __device__ __forceinline__ uint32_t tsr_bf16_pair_max(uint32_t a, uint32_t b)
{
	uint32_t max;

	asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
	return max;
}

/* Byte @i of a word below the upper three bytes of @above. */
static __device__ __forceinline__ uint32_t tsr_byte_below(uint32_t above, uint32_t word, unsigned i)
{
	return __byte_perm(word, above, 0x7650u | (i & 3));
}

/* Two of four bytes as signed numbers of 16 bits, the first one lowest: the first two, and the last two. */
static __device__ __forceinline__ uint32_t tsr_low_bytes_widened(uint32_t bytes)
{
	uint32_t pair;

	asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(pair) : "r"(bytes));
	return pair;
}

static __device__ __forceinline__ uint32_t tsr_high_bytes_widened(uint32_t bytes)
{
	uint32_t pair;

	asm("prmt.b32 %0, %1, 0, 0xb3a2;" : "=r"(pair) : "r"(bytes));
	return pair;
}

/*
 * Of a table of 16 bytes below 128 the four whose numbers are the digits of @digits, the first one lowest: a
 * digit of 8 and more selects the sign of a byte, which is 0.
 */
static __device__ __forceinline__ uint32_t tsr_look_up_bytes(const uint32_t *table, uint32_t digits)
{
	uint32_t low, high;

	asm("prmt.b32 %0, %1, %2, %3;" : "=r"(low) : "r"(table[0]), "r"(table[1]), "r"(digits));
	asm("prmt.b32 %0, %1, %2, %3;"
	    : "=r"(high)
	    : "r"(table[2]), "r"(table[3]), "r"(digits ^ 0x8888));
	return low | high;
}

/* Four bytes, byte number @WHICH of each word, the first one lowest. */
template <unsigned WHICH = 0>
static __device__ __forceinline__ uint32_t tsr_word_of_bytes(const uint32_t *byte)
{
	const uint32_t low = __byte_perm(byte[0], byte[1], 0x0040 + 0x11 * WHICH);
	const uint32_t high = __byte_perm(byte[2], byte[3], 0x0040 + 0x11 * WHICH);

	return __byte_perm(low, high, 0x5410);
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

/* Store a number in global memory on a condition, without a branch. */
static __device__ __forceinline__ void tsr_store_if(bool condition, uint16_t *to, uint16_t value)
{
	asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.u16 [%1], %2; }"
		     :
		     : "r"((uint32_t)condition), "l"(to), "h"(value)
		     : "memory");
}

#endif
