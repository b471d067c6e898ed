/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's powf() in portable operations: 2^(n log2(base)), where the logarithm is a sum of two floats.
 *
 * For base = f 2^e with f around 1, log2(f) = 2 / ln 2 * atanh(u / (f + 1)), u = f - 1, so that with q = 2 u
 * / (f + 1) it is (q + q^3 / 12 + ...) / ln 2.  A GPU's reciprocal of f + 1 may be one float off.  It is made
 * up for, since q_low is the rest of that quotient; here it is rounded to nearest.
 */
#include "step/cuda_power.h"

#include <math.h>

#include "step/step_math.h"

/* 1 / ln 2, and what that lacks. */
#define LOG2_E 0x1.715476p+0f
#define LOG2_E_LOW 0x1.4abc68p-26f

/* The lowest coefficient last. */
static float polynomial(const float *c, unsigned n, float x)
{
	float sum = c[0];

	for (unsigned i = 1; i < n; i++)
		sum = tsr_fma_any(sum, x, c[i]);
	return sum;
}

/* log2(@base), and in @low what it lacks. */
static float logarithm(float base, float *low)
{
	static const float atanh_terms[] = { 0x1.5865c8p-11f, 0x1.a5cfb6p-9f, 0x1.2776e6p-6f,
					     0x1.ec709ep-4f };
	/* The fraction is at least sqrt(1/2). */
	const int32_t bits = (int32_t)tsr_bits_from_f32(base),
		      scale = (bits - 0x3f3504f3) & ~0x7fffff;
	const float f = tsr_f32_from_bits((uint32_t)(bits - scale));
	const float exponent = (float)scale * 0x1p-23f;
	const float u = f - 1.0f, inverse = 1.0f / (f + 1.0f);
	const float q = (u + u) * inverse, square = q * q, rest = u - q;
	const float q_low = inverse * tsr_fma_any(-q, u, rest + rest);
	const float terms = polynomial(atanh_terms, 4, square) * square;
	const float high = tsr_fma_any(q, LOG2_E, exponent);
	float sum = tsr_fma_any(q, LOG2_E, exponent - high);
	float result;

	sum = tsr_fma_any(q_low, LOG2_E, sum);
	sum = tsr_fma_any(q, LOG2_E_LOW, sum);
	sum = tsr_fma_any(terms * 3.0f, q_low, sum);
	sum = tsr_fma_any(terms, q, sum);
	result = high + sum;
	*low = sum - (result - high);
	return result;
}

float tsr_cuda_power(float base, uint64_t n)
{
	static const float exp2_terms[] = { 0x1.3f971cp-13f,
					    0x1.5f0bdap-10f,
					    0x1.3b30acp-7f,
					    0x1.c6af76p-5f,
					    0x1.ebfbd8p-3f,
					    0x1.62e430p-1f,
					    1.0f };
	const float exponent = (float)n;
	float log, low, product, product_low, whole;

	if (!(base >= 0x1p-126f))
		return 0.0f;
	log = logarithm(base, &low);
	product = log * exponent;
	product_low = tsr_fma_any(low, exponent, tsr_fma_any(log, exponent, -product));
	if (product < -126.0f)
		return 0.0f;
	whole = rintf(product);
	return ldexpf(polynomial(exp2_terms, 7, product_low + (product - whole)), (int)whole);
}
