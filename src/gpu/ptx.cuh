/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instructions that have no name in CUDA C++.  tests/gpu/emulate has them for the CPU.
 */
#ifndef TSR_GPU_PTX_CUH
#define TSR_GPU_PTX_CUH

#include <stdint.h>

#include "codec/math.h"

/* A function of some arguments that is an instruction, of which @to is the constraint of the result. */
#define DEFINE_INSTRUCTION(type, to, name, arguments, text, ...) \
	static __device__ __forceinline__ type tsr_##name arguments \
	{ \
		type result; \
\
		asm(text : to(result) : __VA_ARGS__); \
		return result; \
	}

#define DEFINE_FLOAT(...) DEFINE_INSTRUCTION(float, "=f", __VA_ARGS__)
#define DEFINE_WORD(...) DEFINE_INSTRUCTION(uint32_t, "=r", __VA_ARGS__)

/* Within 1 ULP of 1/d, for d and 1/d normal; one instruction. */
DEFINE_FLOAT(reciprocal_estimate, (float d), "rcp.approx.ftz.f32 %0, %1;", "f"(d))

/* Within 2^-22.9 of 1 / sqrt(x), relatively. */
DEFINE_FLOAT(rsqrt_estimate, (float x), "rsqrt.approx.ftz.f32 %0, %1;", "f"(x))

/* Within 2^-22 of log2(x) from 1/2 to 2, of other normal x within that share of it; others count as 0. */
DEFINE_FLOAT(log2_estimate, (float x), "lg2.approx.ftz.f32 %0, %1;", "f"(x))

/* Within 2^-22 of 2^x, relatively, for results that are normal; one instruction. */
DEFINE_FLOAT(exp2_estimate, (float x), "ex2.approx.ftz.f32 %0, %1;", "f"(x))

/* a b + c, or the nearer of 0 and 1; 0 for a NaN.  One instruction. */
DEFINE_FLOAT(fma_from_0_to_1, (float a, float b, float c), "fma.rn.sat.f32 %0, %1, %2, %3;", "f"(a),
	     "f"(b), "f"(c))

/* The larger one, or NaN if any is NaN; one instruction, which takes magnitudes too. */
DEFINE_FLOAT(max_or_nan, (float a, float b), "max.NaN.f32 %0, %1, %2;", "f"(a), "f"(b))

/* The bits of two numbers rounded to BF16 or FP16, @low in the lower half; of a NaN some NaN. */
DEFINE_WORD(bf16_pair, (float low, float high), "cvt.rn.bf16x2.f32 %0, %1, %2;", "f"(high),
	    "f"(low))
DEFINE_WORD(f16_pair, (float low, float high), "cvt.rn.f16x2.f32 %0, %1, %2;", "f"(high), "f"(low))

/* Of two pairs of BF16 without signs the smaller ones, and the larger ones; NaN is larger. */
DEFINE_WORD(bf16_pair_min, (uint32_t a, uint32_t b), "min.bf16x2 %0, %1, %2;", "r"(a), "r"(b))
DEFINE_WORD(bf16_pair_max, (uint32_t a, uint32_t b), "max.NaN.bf16x2 %0, %1, %2;", "r"(a), "r"(b))

/* tsr_f32_from_f16() of what is not NaN. */
DEFINE_FLOAT(f16_widen, (uint32_t narrow), "{ .reg .f16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }",
	     "h"((unsigned short)narrow))

/* Two of four bytes as signed numbers of 16 bits, the first one lowest: the first two, and the last two. */
DEFINE_WORD(low_bytes_widened, (uint32_t bytes), "prmt.b32 %0, %1, 0, 0x9180;", "r"(bytes))
DEFINE_WORD(high_bytes_widened, (uint32_t bytes), "prmt.b32 %0, %1, 0, 0xb3a2;", "r"(bytes))

/* Byte @i of a word below the upper three bytes of @above. */
static __device__ __forceinline__ uint32_t tsr_byte_below(uint32_t above, uint32_t word, unsigned i)
{
	return __byte_perm(word, above, 0x7650u | (i & 3));
}

/* The bytes of two words that the digits number; one of 8 and more is the sign of a byte, eight times. */
DEFINE_WORD(bytes_of, (uint32_t a, uint32_t b, uint32_t digits), "prmt.b32 %0, %1, %2, %3;", "r"(a),
	    "r"(b), "r"(digits))

/* Of a table of 16 bytes below 128, whose signs are 0, the four that the digits number, the first lowest. */
static __device__ __forceinline__ uint32_t tsr_look_up_bytes(const uint32_t *table, uint32_t digits)
{
	return tsr_bytes_of(table[0], table[1], digits) |
	       tsr_bytes_of(table[2], table[3], digits ^ 0x8888);
}

/* Four bytes, byte number @WHICH of each word, the first one lowest. */
template <unsigned WHICH = 0>
static __device__ __forceinline__ uint32_t tsr_word_of_bytes(const uint32_t *byte)
{
	const uint32_t low = __byte_perm(byte[0], byte[1], 0x0040 + 0x11 * WHICH);
	const uint32_t high = __byte_perm(byte[2], byte[3], 0x0040 + 0x11 * WHICH);

	return __byte_perm(low, high, 0x5410);
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
