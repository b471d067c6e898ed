/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast paths: fewer instructions for the same bits where the operands are known to be ordinary.
 * Each function says what it is equal to and when; tests/gpu/proofs.cu tries them on the GPU in use:
 * every input of one operand, quotients at random and next to ties, softsign8's at every place where
 * the code changes.
 *
 * IEEE division and square root are a few instructions around an estimate and a branch for operands
 * near the ends of the exponent range, which a group of elements rules out once for all of them.
 */
#ifndef TSR_GPU_SHORTCUT_CUH
#define TSR_GPU_SHORTCUT_CUH

#include <stdint.h>

#include "gpu/ptx.cuh"
#include "codec/math.h"

/* One step of Newton's method takes any such estimate to where quotients can be made of it. */
static __device__ __forceinline__ float tsr_reciprocal_step(float d, float estimate)
{
	return tsr_fma(estimate, tsr_fma(-d, estimate, 1.0f), estimate);
}

/* n / d from RN(1/d). */
static __device__ __forceinline__ float tsr_near_quotient(float n, float d, float reciprocal)
{
	const float guess = n * reciprocal;

	return tsr_fma(tsr_fma(-guess, d, n), reciprocal, guess);
}

/*
 * RN(n / d) where 1/d and all that is computed here are normal numbers, or n is +0: the toolkit's own
 * division without its test for other operands.  Of every estimate within 1 ULP the step makes
 * RN(1/d), so that it does not matter which it is, but for d whose significand is all ones: there it
 * has to be RN(1/d) itself, as it is on these GPUs.
 */
static __device__ __forceinline__ float tsr_quotient_from(float n, float d, float estimate)
{
	return tsr_near_quotient(n, d, tsr_reciprocal_step(d, estimate));
}

static __device__ __forceinline__ float tsr_quotient_ordinary(float n, float d)
{
	return tsr_quotient_from(n, d, tsr_reciprocal_estimate(d));
}

/*
 * tsr_softsign_code_in() of m and scale for 2^-100 <= scale <= 2^124 and |m| <= scale, from an estimate of
 * 1 / (scale + |m|).  The code changes at 127 quotients; at none of them does it matter, nor that
 * tsr_round_half_away_i32() rounds twice.
 */
static __device__ __forceinline__ int32_t tsr_softsign_code_from(float m, float d, float estimate,
								 uint32_t sign_mask = TSR_F32_SIGN)
{
	const float half_z = tsr_near_quotient(m, d, tsr_reciprocal_step(d, estimate));

	const uint32_t sign = tsr_bits_from_f32(half_z) & sign_mask;

	return (int32_t)tsr_fma(254.0f, half_z, tsr_f32_from_bits(sign | 0x3f000000u));
}

static __device__ __forceinline__ int32_t
tsr_softsign_code_ordinary(float m, float scale, uint32_t sign_mask = TSR_F32_SIGN)
{
	const float d = scale + fabsf(m);

	return tsr_softsign_code_from(m, d, tsr_reciprocal_estimate(d), sign_mask);
}

/* RN(q / (254 - |q|)) for a code q, from an estimate of 1 / (254 - |q|). */
static __device__ __forceinline__ float tsr_softsign_ratio_from(float q, float d, float estimate)
{
	return tsr_near_quotient(q, d, estimate);
}

static __device__ __forceinline__ float tsr_softsign_ratio(float q)
{
	const float d = 254.0f - fabsf(q);

	return tsr_softsign_ratio_from(q, d, tsr_reciprocal_estimate(d));
}

/*
 * RN(sqrt(x)) for finite x from 2^-100 on: the toolkit's own root without its test for other
 * operands.  Of the nearest estimate it makes the nearest root, and of this GPU's, which is not
 * always that.
 */
static __device__ __forceinline__ float tsr_root_from(float x, float estimate)
{
	const float guess = x * estimate, half_inverse = 0.5f * estimate;

	return tsr_fma(tsr_fma(-guess, guess, x), half_inverse, guess);
}

static __device__ __forceinline__ float tsr_root_ordinary(float x)
{
	return tsr_root_from(x, tsr_rsqrt_estimate(x));
}

/* --- By the word ------------------------------------------------------------------------------- */

/*
 * What an instruction takes from a register because it has room for one constant only.  If the
 * compiler knew them, it would make two instructions of each that uses them: they come from memory.
 */
struct tsr_masks {
	uint32_t exponent; /* TSR_F32_INF */
	uint32_t sign; /* TSR_F32_SIGN */
	uint32_t integer; /* of 2^23 */
};

static inline struct tsr_masks tsr_masks(void)
{
	const struct tsr_masks masks = { TSR_F32_INF, TSR_F32_SIGN, 0x4b000000u };

	return masks;
}

/*
 * Codes become numbers as the last places of 2^23, with half the instructions that it takes to
 * extract bytes and convert them.  Signed ones are flipped first: 128 is added to each byte.
 */
static __device__ __forceinline__ float tsr_unsigned_code(struct tsr_masks masks, uint32_t word,
							  unsigned i)
{
	return tsr_f32_from_bits(tsr_byte_below(masks.integer, word, i)) - 0x1p23f;
}

static __device__ __forceinline__ uint32_t tsr_flip_signed_codes(uint32_t word)
{
	return word ^ 0x80808080u;
}

static __device__ __forceinline__ float tsr_signed_code(struct tsr_masks masks, uint32_t flipped,
							unsigned i)
{
	return tsr_f32_from_bits(tsr_byte_below(masks.integer, flipped, i)) - (0x1p23f + 128.0f);
}

/*
 * tsr_ulp_join() of BF16 and an 8-bit correction, for a narrow weight that is finite and not
 * subnormal or zero: a nonzero fraction with 24 bits more would not be rounded another way, and
 * adding zero leaves the weight as it is.  1/127 is 2^-7 and the mantissa that goes beside the
 * weight's exponent.  @bits: of the weight, with any mantissa.
 */
static __device__ __forceinline__ float tsr_bf16_ulp8_join(struct tsr_masks masks, float narrow,
							   uint32_t bits, uint32_t flipped,
							   unsigned i)
{
	const float code = tsr_f32_from_bits(tsr_byte_below(masks.integer, flipped, i));
	const float fraction = tsr_fma(code, 0x1p-15f, -(0x1p23f + 128.0f) * 0x1p-15f);
	const float power = tsr_f32_from_bits((bits & masks.exponent) | 0x010204u);

	return tsr_fma(fraction, power, narrow);
}

/*
 * The lowest 8 bits are tsr_ulp_correction() of BF16 with 127 levels, for such a narrow weight.
 * Their product with 2^13 and the difference is t * levels, which has few enough bits to be exact.
 * The last place of the sum is an integer's; 127 is one ULP larger than it is, so that halves are
 * rounded away from zero and nothing else another way.
 */
static __device__ __forceinline__ uint32_t tsr_bf16_ulp8_correction(struct tsr_masks masks, float x,
								    float narrow, uint32_t bits)
{
	const float inverse = tsr_f32_from_bits((~bits & masks.exponent) | 0x7e0001u);

	return tsr_bits_from_f32(tsr_fma(x - narrow, inverse, 0x1.8p10f));
}

#endif
