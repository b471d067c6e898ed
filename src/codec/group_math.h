/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formulas of codecs whose elements share scales in groups, for C and for CUDA: see codec/math.h,
 * whose contract they keep.
 *
 * A codec <id> has tsr_<id>_peak() of the largest magnitude, of which the scale is made; _unit() of
 * the scale, by which elements are multiplied first; _factor() of the scale, by which the _code_in()
 * of an element is found within _bounds(); _value() of a code; and for unsigned codes the _least() that
 * a _positive() element gets.
 */
#ifndef TSR_CODEC_GROUP_MATH_H
#define TSR_CODEC_GROUP_MATH_H

#include "codec/math.h"
#include "tersor/codec.h"

/* --- Codes ---------------------------------------------------------------------------------- */

/*
 * The bounds of codes.  They are arguments because gcc 12, where it knows both, makes twelve
 * instructions of the two that a clamp takes: a loop can hide that they are constants.
 */
struct tsr_bounds {
	float lo, hi;
};

#define TSR_DEFINE_BOUNDS(id, lo, hi) \
	TSR_HD struct tsr_bounds tsr_bounds_##id(void) \
	{ \
		const struct tsr_bounds b = { lo, hi }; \
\
		return b; \
	}

TSR_DEFINE_BOUNDS(i8, -127.0f, 127.0f)
TSR_DEFINE_BOUNDS(i9, -255.0f, 255.0f)
TSR_DEFINE_BOUNDS(i10, -511.0f, 511.0f)
TSR_DEFINE_BOUNDS(u8, 0.0f, 255.0f)

/* --- Scales of groups ------------------------------------------------------------------------ */

/* Top 16 bits below the sign, rounded up, never to infinity: 8 exponent and 8 mantissa bits. */
#define TSR_E8M8_MAX 0xfeffu

TSR_HD uint32_t tsr_e8m8_from_f32(float absmax)
{
	const uint32_t code = (tsr_bits_from_f32(absmax) + 0x7fffu) >> 15;

	return code < TSR_E8M8_MAX ? code : TSR_E8M8_MAX;
}

TSR_HD float tsr_f32_from_e8m8(uint32_t code)
{
	return tsr_f32_from_bits(code << 15);
}

/*
 * Five exponent and three mantissa bits of the FP32 pattern, to nearest, from 1.125 * 2^-20 to 3840:
 * anything positive has a code from 1 to 255.
 */
#define TSR_E5M3_BELOW (107u << 3)
#define TSR_E5M3_MAX 3840.0f

TSR_HD uint32_t tsr_e5m3_from_f32(float scale)
{
	const uint32_t bits = tsr_bits_from_f32(scale), near = (bits + 0x80000u) >> 20;
	const uint32_t least = TSR_E5M3_BELOW + 1, most = TSR_E5M3_BELOW + 255;
	const uint32_t low = near > least ? near : least, code = low < most ? low : most;

	return bits ? code - TSR_E5M3_BELOW : 0;
}

TSR_HD float tsr_f32_from_e5m3(uint32_t code)
{
	return code ? tsr_f32_from_bits((code + TSR_E5M3_BELOW) << 20) : 0.0f;
}

/* What a plane of scales has of one, and what that stands for; e8m8 has codes up to @e8m8_max. */
TSR_HD uint32_t tsr_scale_entry(enum tsr_scale format, float scale, uint32_t e8m8_max)
{
	const uint32_t e8m8 = tsr_e8m8_from_f32(scale);

	if (format == TSR_SCALE_E8M8)
		return e8m8 < e8m8_max ? e8m8 : e8m8_max;
	if (format == TSR_SCALE_F16)
		return tsr_f16_from_f32(scale);
	return format == TSR_SCALE_E5M3 ? tsr_e5m3_from_f32(scale) : tsr_bits_from_f32(scale);
}

/* Whether @entry, of a finite scale, stands for much less. */
TSR_HD bool tsr_scale_overflows(enum tsr_scale format, float scale, uint32_t entry)
{
	if (format == TSR_SCALE_F16)
		return entry >= 0x7c00;
	return format == TSR_SCALE_E5M3 && scale > TSR_E5M3_MAX;
}

TSR_HD float tsr_scale_value(enum tsr_scale format, uint32_t entry)
{
	if (format == TSR_SCALE_F32)
		return tsr_f32_from_bits(entry);
	if (format == TSR_SCALE_E5M3)
		return tsr_f32_from_e5m3(entry);
	return format == TSR_SCALE_E8M8 ? tsr_f32_from_e8m8(entry) : tsr_f32_from_f16(entry);
}

/* Entry @g of such a plane. */
TSR_HD void tsr_scale_put(enum tsr_scale format, void *scales, uint64_t g, uint32_t entry)
{
	if (format == TSR_SCALE_F32)
		((uint32_t *)scales)[g] = entry;
	else if (format == TSR_SCALE_E5M3)
		((uint8_t *)scales)[g] = (uint8_t)entry;
	else
		((uint16_t *)scales)[g] = (uint16_t)entry;
}

TSR_HD uint32_t tsr_scale_get(enum tsr_scale format, const void *scales, uint64_t g)
{
	if (format == TSR_SCALE_F32)
		return ((const uint32_t *)scales)[g];
	return format == TSR_SCALE_E5M3 ? ((const uint8_t *)scales)[g]
					: ((const uint16_t *)scales)[g];
}

/*
 * What FlashOptim's encoder divides by when it stores scales as FP16: the unrounded scale, at least
 * 1e-12.  What is stored is then 0 anyway (from 2^-25 down).
 */
TSR_HD float tsr_f16_divisor(float absmax)
{
	return absmax > 1e-12f ? absmax : 1e-12f;
}

/*
 * A power of two that takes a group with this scale away from both ends of the exponent range,
 * so that s + |m| cannot overflow and levels / s neither overflows nor is subnormal.
 */
TSR_HD float tsr_group_unit(float scale)
{
	const float unit = scale < 0x1p-60f ? 0x1p64f : 1.0f;

	return scale >= 0x1p120f ? 0x1p-4f : unit;
}

/* levels / s, or 0 for the scale of an all-zero group, whose codes are then 0. */
TSR_HD float tsr_inverse_scale(float levels, float scale)
{
	return scale > 0.0f ? levels / scale : 0.0f;
}

/*
 * What elements are coded by, made of their scale once per group.  They are multiplied by the unit
 * before, but for roots, which need none.
 */
TSR_HD float tsr_scale_itself(float scale)
{
	return scale * tsr_group_unit(scale);
}

TSR_HD float tsr_linear_factor(float scale)
{
	return tsr_inverse_scale(127.0f, scale * tsr_group_unit(scale));
}

TSR_HD float tsr_sqrt_factor(float scale)
{
	return tsr_inverse_scale(255.0f, scale);
}

TSR_HD float tsr_root_factor(float scale)
{
	return tsr_sqrt_factor(scale);
}

TSR_HD float tsr_ulinear_factor(float scale)
{
	return tsr_inverse_scale(255.0f, scale * tsr_group_unit(scale));
}

/* --- Momentum (FlashOptim, Algorithm 2): softsign companding --------------------------------- */

/*
 * Code of m in a group of scale s, both already multiplied by tsr_group_unit(s), of so many levels L; 0 if
 * s is 0: L z rounded to the nearest, halves away from zero, z = RN(2m / (s + |m|)).  With h = z / 2 the
 * product and the half that is added in rounding fuse; tested for every h.
 */
TSR_HD float tsr_softsign_code_plus_half(float m, float scale, float levels)
{
	const float half_z = m / (scale + tsr_abs(m));
	const uint32_t sign = tsr_bits_from_f32(m) & TSR_F32_SIGN;
	const float half = tsr_f32_from_bits(sign | 0x3f000000u);

#if TSR_HAS_FMA
	return tsr_fma(half_z, 2.0f * levels, half);
#else
	return half_z * (2.0f * levels) + half;
#endif
}

/*
 * The members of the family: L = 2^(k-1) - 1 for k bits.  A value is s * (q / (2L - |q|)), the inverse
 * companding (q/L) / (2 - |q/L|) as one IEEE quotient.
 */
#define TSR_DEFINE_SOFTSIGN(id, levels) \
	TSR_HD float tsr_##id##_factor(float scale) \
	{ \
		return tsr_scale_itself(scale); \
	} \
	TSR_HD int32_t tsr_##id##_code_in(struct tsr_bounds b, float m, float scale) \
	{ \
		const float t = tsr_clamp(tsr_softsign_code_plus_half(m, scale, levels), b.lo, \
					  b.hi); \
\
		return scale > 0.0f ? (int32_t)t : 0; \
	} \
	TSR_HD float tsr_##id##_value(float q, float scale) \
	{ \
		return scale * (q / (2.0f * levels - tsr_abs(q))); \
	}

TSR_DEFINE_SOFTSIGN(softsign, 127.0f)
TSR_DEFINE_SOFTSIGN(softsign9, 255.0f)
TSR_DEFINE_SOFTSIGN(softsign10, 511.0f)

/* --- Levels for a normal distribution (Max, 1960), relative to the root mean square -------------- */

/*
 * What an element adds to the mean square of its group, in units of 2^-15 of the largest one's: integers, so
 * that the order of adding does not matter, and a sum over TSR_GROUP_MAX elements fits.
 */
TSR_HD uint32_t tsr_square_share(float x, float absmax)
{
	const float t = tsr_abs(x) / absmax, finite = t <= 1.0f ? t : 0.0f;

	return (uint32_t)(int32_t)(finite * finite * 32768.0f);
}

TSR_HD float tsr_root_mean_square(float absmax, uint32_t sum, uint32_t count)
{
	const float mean = (float)sum / (float)count * 0x1p-15f;

	return tsr_bits_from_f32(absmax) < TSR_F32_INF ? absmax * tsr_sqrt(mean) : absmax;
}

/* Code i >= 0 is level i, -1 - i is minus level i: no level is 0. */
TSR_HD int32_t tsr_signed_level(int32_t level, float x)
{
	return x < 0.0f ? -1 - level : level;
}

TSR_HD int32_t tsr_level_of(float q)
{
	return (int32_t)(q < 0.0f ? -1.0f - q : q);
}

TSR_HD float tsr_max3_factor(float scale)
{
	return tsr_scale_itself(scale);
}

TSR_HD int32_t tsr_max3_code_in(struct tsr_bounds b, float x, float scale)
{
	const float t = tsr_abs(x) / scale;
	const int32_t level = (t >= 0.50055f) + (t >= 1.04995f) + (t >= 1.74795f);

	return (void)b, scale > 0.0f ? tsr_signed_level(level, x) : 0;
}

TSR_HD float tsr_max3_value(float q, float scale)
{
	const int32_t i = tsr_level_of(q);
	const float level = i < 2 ? (i < 1 ? 0.2451f : 0.7560f) : (i < 3 ? 1.3439f : 2.1520f);

	return scale * (q < 0.0f ? -level : level);
}

TSR_HD float tsr_max4_factor(float scale)
{
	return tsr_scale_itself(scale);
}

TSR_HD int32_t tsr_max4_code_in(struct tsr_bounds b, float x, float scale)
{
	const float t = tsr_abs(x) / scale;
	const int32_t level = (t >= 0.25825f) + (t >= 0.52245f) + (t >= 0.7996f) + (t >= 1.0993f) +
			      (t >= 1.43715f) + (t >= 1.84355f) + (t >= 2.4008f);

	return (void)b, scale > 0.0f ? tsr_signed_level(level, x) : 0;
}

TSR_HD float tsr_max4_value(float q, float scale)
{
	const int32_t i = tsr_level_of(q);
	const float inner = i < 2 ? (i < 1 ? 0.1284f : 0.3881f) : (i < 3 ? 0.6568f : 0.9424f);
	const float outer = i < 6 ? (i < 5 ? 1.2562f : 1.6181f) : (i < 7 ? 2.0690f : 2.7326f);
	const float level = i < 4 ? inner : outer;

	return scale * (q < 0.0f ? -level : level);
}

/* --- Variance (FlashOptim, Algorithm 3): square root companding ------------------------------ */

/* The largest scale whose square is finite as e8m8; sqrt(FLT_MAX) itself rounds up past it. */
#define TSR_E8M8_SQRT_MAX 0xbeffu /* 2^64 (1 - 2^-9) */

/* The code of an element whose root is known, and of an element. */
TSR_HD int32_t tsr_root_code_in(struct tsr_bounds b, float root, float inverse)
{
	return (int32_t)tsr_clamp(root * inverse + 0.5f, b.lo, b.hi);
}

TSR_HD int32_t tsr_sqrt_code_in(struct tsr_bounds b, float v, float inverse)
{
	return tsr_root_code_in(b, tsr_sqrt(v), inverse);
}

/* RN(sqrt) is monotonic: the largest root is the root of the largest. */
TSR_HD float tsr_sqrt_of_largest(float absmax)
{
#if defined(__CUDA_ARCH__)
	/* GPUs make one NaN of all; CPUs keep it and make it quiet. */
	const uint32_t bits = tsr_bits_from_f32(absmax);

	return bits > TSR_F32_INF ? tsr_f32_from_bits(bits | 0x400000u) : tsr_sqrt(absmax);
#else
	return tsr_sqrt(absmax);
#endif
}

TSR_HD float tsr_sqrt_value(float q, float scale)
{
	const float root = tsr_code_quotient(q, 255.0f) * scale;

	return root * root;
}

/* --- Linear baselines ------------------------------------------------------------------------ */

TSR_HD int32_t tsr_linear_code_in(struct tsr_bounds b, float m, float inverse)
{
	return tsr_round_half_away_i32(tsr_clamp(m * inverse, b.lo, b.hi));
}

TSR_HD float tsr_linear_value(float q, float scale)
{
	return tsr_code_quotient(q, 127.0f) * scale;
}

TSR_HD int32_t tsr_ulinear_code_in(struct tsr_bounds b, float v, float inverse)
{
	return (int32_t)tsr_clamp(v * inverse + 0.5f, b.lo, b.hi);
}

TSR_HD float tsr_ulinear_value(float q, float scale)
{
	return tsr_code_quotient(q, 255.0f) * scale;
}

/* --- Positive variances ------------------------------------------------------------------------ */

/*
 * A positive variance never decodes to 0, as the momentum beside it would be divided by eps alone: it
 * has at least the least code that decodes to something.  Scales stored as f16 are FlashOptim's, which
 * has no such rule: there the least code is 0.
 */
TSR_HD int32_t tsr_positive_code(int32_t code, float x, int32_t least)
{
	const int32_t floor = x > 0.0f ? least : 0;

	return code > floor ? code : floor;
}

/* The least code that is not 0 once it is decoded: above 1 only where squares underflow. */
TSR_HD int32_t tsr_least_sqrt_code(float scale)
{
	int32_t code = 1;

	if (scale >= 0x1p-66f || !(scale > 0.0f))
		return 1;
	while (code < 255 && !(tsr_sqrt_value((float)code, scale) > 0.0f))
		code++;
	return code;
}

TSR_HD int32_t tsr_least_ulinear_code(float scale)
{
	int32_t code = 1;

	if (scale >= 0x1p-141f || !(scale > 0.0f))
		return 1;
	while (code < 255 && !(tsr_ulinear_value((float)code, scale) > 0.0f))
		code++;
	return code;
}

/* --- What codecs have in common ------------------------------------------------------------- */

TSR_HD float tsr_largest_itself(float absmax)
{
	return absmax;
}

TSR_HD float tsr_no_unit(float scale)
{
	return (void)scale, 1.0f;
}

TSR_HD int32_t tsr_no_least(float scale)
{
	return (void)scale, 0;
}

TSR_HD int32_t tsr_code_itself(int32_t code, float x, int32_t least)
{
	return (void)x, (void)least, code;
}

#define TSR_DEFINE_GROUP(id, codes, largest_scale, peak_of, unit_of, least_of, positive_of) \
	TSR_HD struct tsr_bounds tsr_##id##_bounds(void) \
	{ \
		return tsr_bounds_##codes(); \
	} \
	TSR_HD uint32_t tsr_##id##_e8m8_max(void) \
	{ \
		return largest_scale; \
	} \
	TSR_HD float tsr_##id##_peak(float absmax) \
	{ \
		return peak_of(absmax); \
	} \
	TSR_HD float tsr_##id##_unit(float scale) \
	{ \
		return unit_of(scale); \
	} \
	TSR_HD int32_t tsr_##id##_least(float scale) \
	{ \
		return least_of(scale); \
	} \
	TSR_HD int32_t tsr_##id##_positive(int32_t code, float x, int32_t least) \
	{ \
		return positive_of(code, x, least); \
	}

TSR_DEFINE_GROUP(softsign, i8, TSR_E8M8_MAX, tsr_largest_itself, tsr_group_unit, tsr_no_least,
		 tsr_code_itself)
TSR_DEFINE_GROUP(softsign9, i9, TSR_E8M8_MAX, tsr_largest_itself, tsr_group_unit, tsr_no_least,
		 tsr_code_itself)
TSR_DEFINE_GROUP(softsign10, i10, TSR_E8M8_MAX, tsr_largest_itself, tsr_group_unit, tsr_no_least,
		 tsr_code_itself)
/* Their codes need no bounds. */
TSR_DEFINE_GROUP(max3, i8, TSR_E8M8_MAX, tsr_largest_itself, tsr_group_unit, tsr_no_least,
		 tsr_code_itself)
TSR_DEFINE_GROUP(max4, i8, TSR_E8M8_MAX, tsr_largest_itself, tsr_group_unit, tsr_no_least,
		 tsr_code_itself)
TSR_DEFINE_GROUP(linear, i8, TSR_E8M8_MAX, tsr_largest_itself, tsr_group_unit, tsr_no_least,
		 tsr_code_itself)
TSR_DEFINE_GROUP(ulinear, u8, TSR_E8M8_MAX, tsr_largest_itself, tsr_group_unit,
		 tsr_least_ulinear_code, tsr_positive_code)
TSR_DEFINE_GROUP(sqrt, u8, TSR_E8M8_SQRT_MAX, tsr_sqrt_of_largest, tsr_no_unit, tsr_least_sqrt_code,
		 tsr_positive_code)
TSR_DEFINE_GROUP(root, u8, TSR_E8M8_SQRT_MAX, tsr_largest_itself, tsr_no_unit, tsr_least_sqrt_code,
		 tsr_positive_code)

#endif
