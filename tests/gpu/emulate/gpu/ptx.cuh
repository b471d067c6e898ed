/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_GPU_PTX_CUH
#define TSR_GPU_PTX_CUH

/*
 * Takes the place of src/gpu/ptx.cuh: as far from the exact value as the instructions may be, each
 * time by another amount, so that nothing comes to depend on one GPU's estimates.
 */
#include <stdint.h>

#include "codec/math.h"

static inline uint32_t tsr_low_bytes_widened(uint32_t bytes)
{
	return (uint16_t)(int8_t)bytes | (uint32_t)(int8_t)(bytes >> 8) << 16;
}

static inline uint32_t tsr_high_bytes_widened(uint32_t bytes)
{
	return tsr_low_bytes_widened(bytes >> 16);
}

static inline uint32_t tsr_look_up_bytes(const uint32_t *table, uint32_t digits)
{
	uint32_t bytes = 0;

	for (unsigned i = 0; i < 4; i++) {
		const unsigned digit = digits >> 4 * i & 15;

		bytes |= (table[digit / 4] >> 8 * (digit % 4) & 0xff) << 8 * i;
	}
	return bytes;
}

static inline float emulated_flush(float x)
{
	return tsr_abs(x) < 0x1p-126f ? 0.0f * x : x;
}

/* A float up to @most (in units of its last place) from @exact, which one depends on @seed. */
static inline float emulated_estimate(double exact, double most, float seed)
{
	const float nearest = (float)exact;
	const float ulp = nextafterf(fabsf(nearest), INFINITY) - fabsf(nearest);
	const int steps = (int)(tsr_bits_from_f32(seed) * 2654435761u >> 16) % 5 - 2;
	const float estimate = tsr_f32_from_bits(tsr_bits_from_f32(nearest) + (uint32_t)steps);
	const bool ordinary = fabs(exact) >= 0x1p-125 && fabs(exact) < 0x1p127;

	if (!ordinary)
		return emulated_flush(nearest);
	return fabs((double)estimate - exact) <= most * (double)ulp ? estimate : nearest;
}

/* Of d with a significand of ones it is the nearest, or the toolkit's division would be wrong. */
static inline float tsr_reciprocal_estimate(float d)
{
	if ((tsr_bits_from_f32(d) & 0x7fffffu) == 0x7fffffu)
		return emulated_flush(1.0f / emulated_flush(d));
	return emulated_estimate(1.0 / (double)emulated_flush(d), 1, d);
}

/* The nearest, or the toolkit's square root would be wrong. */
static inline float tsr_rsqrt_estimate(float x)
{
	return emulated_flush((float)(1.0 / sqrt((double)emulated_flush(x))));
}

static inline float tsr_log2_estimate(float x)
{
	const double exact = log2((double)emulated_flush(x));
	const double most = 0x1p-22 * (x >= 0.5f && x <= 2.0f ? 1 : fabs(exact));
	const int steps = (int)(tsr_bits_from_f32(x) * 2654435761u >> 16) % 3 - 1;

	return fabs(exact) < 1e3 ? (float)(exact + steps * most) : (float)exact;
}

static inline float tsr_exp2_estimate(float x)
{
	const int steps = (int)(tsr_bits_from_f32(x) * 2654435761u >> 16) % 3 - 1;

	return emulated_flush((float)(exp2((double)x) * (1.0 + steps * 0x1p-22)));
}

static inline float tsr_fma_from_0_to_1(float a, float b, float c)
{
	const float sum = fmaf(a, b, c);

	return sum > 0.0f ? fminf(sum, 1.0f) : 0.0f;
}

static inline float tsr_max_or_nan(float a, float b)
{
	if (a != a || b != b)
		return tsr_f32_from_bits(0x7fffffffu);
	return a > b ? a : b;
}

static inline uint32_t tsr_bf16_pair(float low, float high)
{
	const uint32_t l = low != low ? 0x7fff : tsr_bf16_from_f32(low);
	const uint32_t h = high != high ? 0x7fff : tsr_bf16_from_f32(high);

	return h << 16 | l;
}

static inline uint32_t tsr_bf16_pair_min(uint32_t a, uint32_t b)
{
	const uint32_t low = std::min(a & 0x7fff, b & 0x7fff);
	const uint32_t high = std::min(a >> 16 & 0x7fff, b >> 16 & 0x7fff);

	return high << 16 | low; /* none is NaN where it matters */
}

static inline uint32_t tsr_bf16_pair_max(uint32_t a, uint32_t b)
{
	const uint32_t low = std::max(a & 0x7fff, b & 0x7fff);
	const uint32_t high = std::max(a >> 16 & 0x7fff, b >> 16 & 0x7fff);

	return high << 16 | low;
}

static inline uint32_t tsr_byte_below(uint32_t above, uint32_t word, unsigned i)
{
	return (above & 0xffffff00u) | (word >> 8 * i & 0xff);
}

template <unsigned WHICH = 0> static inline uint32_t tsr_word_of_bytes(const uint32_t *byte)
{
	uint32_t word = 0;

	for (int i = 0; i < 4; i++)
		word |= (byte[i] >> 8 * WHICH & 0xff) << 8 * i;
	return word;
}

static inline uint32_t tsr_f16_pair(float low, float high)
{
	const uint32_t l = low != low ? 0x7fff : tsr_f16_from_f32(low);
	const uint32_t h = high != high ? 0x7fff : tsr_f16_from_f32(high);

	return h << 16 | l;
}

static inline float tsr_f16_widen(uint32_t narrow)
{
	const float x = tsr_f32_from_f16(narrow);

	return x != x ? tsr_f32_from_bits(0x7fffffffu) : x;
}

static inline void tsr_store_if(bool condition, uint16_t *to, uint16_t value)
{
	if (condition)
		*to = value;
}

#endif
