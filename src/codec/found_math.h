/* SPDX-License-Identifier: Apache-2.0 */
/* What elements are like, as far as it decides whether a codec can hold them: for C and for CUDA. */
#ifndef TSR_CODEC_FOUND_MATH_H
#define TSR_CODEC_FOUND_MATH_H

#include "codec/math.h"
#include "tersor/codec.h"

/* Of some elements, the counts of struct tsr_device_found. */
struct tsr_found_counts {
	uint32_t nonfinite, negative, nonzero, fractional, wide, overflow;
};

/* Magnitudes from these bits on are infinite when rounded to BF16 or F16, or are infinite already. */
#define TSR_FOUND_LIMIT_BF16 0x7f7f8000u
#define TSR_FOUND_LIMIT_F16 0x477ff000u
#define TSR_FOUND_LIMIT_F32 0x7f800000u

/* The one of a codec's narrow float. */
static inline uint32_t tsr_found_limit(const struct tsr_codec *codec)
{
	return codec->narrow == TSR_BF16  ? TSR_FOUND_LIMIT_BF16
	       : codec->narrow == TSR_F16 ? TSR_FOUND_LIMIT_F16
					  : TSR_FOUND_LIMIT_F32;
}

TSR_HD void tsr_found_count(struct tsr_found_counts *c, float x, uint32_t limit)
{
	const uint32_t bits = tsr_bits_from_f32(x), magnitude = bits & 0x7fffffffu;
	const float integer = magnitude <= 0x4b800000u ? x : 0.5f; /* up to 2^24 */

	c->nonfinite += magnitude >= TSR_FOUND_LIMIT_F32 ? 1u : 0u;
	c->negative += x < 0.0f ? 1u : 0u;
	c->nonzero += magnitude ? 1u : 0u;
	c->fractional += (float)(int32_t)integer != integer ? 1u : 0u;
	c->wide += bits & 0xffffu ? 1u : 0u;
	c->overflow += magnitude >= limit && magnitude < TSR_FOUND_LIMIT_F32 ? 1u : 0u;
}

#endif
