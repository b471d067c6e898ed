/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_GPU_SHORTCUT_CUH
#define TSR_GPU_SHORTCUT_CUH

/*
 * Shorter ways to the same bits, where what goes in is known to be ordinary.  Each one says what it
 * is equal to and when; tests/gpu/proofs.cu tries every case on the GPU at hand.
 *
 * IEEE division and square root are a few instructions around an estimate and a branch for operands
 * near the ends of the exponent range, which a group of elements rules out once for all of them.
 */
#include <stdint.h>

#include "gpu/ptx.cuh"
#include "tersor/math.h"

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
 * tsr_softsign_code(m, scale) for 2^-100 <= scale <= 2^124 and |m| <= scale, from an estimate of
 * 1 / (scale + |m|).  The code changes at 127 quotients; at none of them does it matter.
 */
static __device__ __forceinline__ int32_t tsr_softsign_code_from(float m, float d, float estimate)
{
	const float half_z = tsr_near_quotient(m, d, tsr_reciprocal_step(d, estimate));

	return tsr_round_half_away_i32(254.0f * half_z);
}

static __device__ __forceinline__ int32_t tsr_softsign_code_ordinary(float m, float scale)
{
	const float d = scale + fabsf(m);

	return tsr_softsign_code_from(m, d, tsr_reciprocal_estimate(d));
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
 * RN(sqrt(x)) for finite x from 2^-100 on, from an estimate of 1 / sqrt(x).  One step refines root
 * and reciprocal together; the residual then gives the last bit.
 */
static __device__ __forceinline__ float tsr_root_from(float x, float estimate)
{
	const float guess = x * estimate, half = 0.5f * estimate;
	const float error = tsr_fma(-guess, half, 0.5f);
	const float root = tsr_fma(guess, error, guess), half_inverse = tsr_fma(half, error, half);

	return tsr_fma(tsr_fma(-root, root, x), half_inverse, root);
}

static __device__ __forceinline__ float tsr_root_ordinary(float x)
{
	return tsr_root_from(x, tsr_rsqrt_estimate(x));
}

#endif
