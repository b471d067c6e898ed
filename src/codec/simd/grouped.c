/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit optimizer state with a scale per group: softsign8 (momentum) and sqrt8 (variance) of
 * FlashOptim, Algorithms 2 and 3, and their linear baselines.
 *
 * A codec is two functions on one group.  Groups of the default size get a copy of the loops in
 * which the size is a constant.
 */
#include <string.h>

#include "codec/isa.h"
#include "tersor/math.h"

#define INLINE static inline __attribute__((always_inline))

/*
 * The largest magnitude as bits, which are ordered like the values.  A NaN is larger than all.
 */
INLINE float group_absmax(const float *x, size_t n)
{
	int32_t max = 0;

	for (size_t i = 0; i < n; i++) {
		const int32_t mag = (int32_t)(tsr_bits_from_f32(x[i]) & TSR_F32_MAG);

		max = mag > max ? mag : max;
	}
	return tsr_f32_from_bits((uint32_t)max);
}

/*
 * Store the scale of group @g and return the one that its encoder divides by.  e8m8 divides by
 * what is stored; f16 is FlashOptim's, which rounds only what it stores.
 */
INLINE float put_scale(void *plane, enum tsr_scale format, size_t g, float scale, uint16_t e8m8_max,
		       struct tsr_encode_report *report)
{
	if (format == TSR_SCALE_E8M8) {
		const uint16_t code = tsr_e8m8_from_f32(scale);
		const uint16_t capped = code < e8m8_max ? code : e8m8_max;

		memcpy((char *)plane + g * sizeof(capped), &capped, sizeof(capped));
		return tsr_f32_from_e8m8(capped);
	}
	if (format == TSR_SCALE_F16) {
		const uint16_t narrow = tsr_f16_from_f32(scale);

		memcpy((char *)plane + g * sizeof(narrow), &narrow, sizeof(narrow));
		report->scale_underflow += narrow == 0 && scale > 0.0f;
		report->scale_overflow += narrow >= 0x7c00;
		return tsr_f16_divisor(scale);
	}
	memcpy((char *)plane + g * sizeof(scale), &scale, sizeof(scale));
	return scale;
}

INLINE float get_scale(const void *plane, enum tsr_scale format, size_t g)
{
	uint16_t narrow;
	float scale;

	if (format == TSR_SCALE_F32) {
		memcpy(&scale, (const char *)plane + g * sizeof(scale), sizeof(scale));
		return scale;
	}
	memcpy(&narrow, (const char *)plane + g * sizeof(narrow), sizeof(narrow));
	return format == TSR_SCALE_E8M8 ? tsr_f32_from_e8m8(narrow) : tsr_f32_from_f16(narrow);
}

struct scale_out {
	void *plane;
	enum tsr_scale format;
	struct tsr_encode_report *report;
};

/* --- One group ----------------------------------------------------------------------------- */

INLINE void softsign_encode(const float *restrict m, size_t n, int8_t *restrict code, size_t g,
			    struct scale_out out)
{
	const float scale = put_scale(out.plane, out.format, g, group_absmax(m, n), TSR_E8M8_MAX,
				      out.report);
	const float unit = tsr_group_unit(scale);
	const float unit_scale = scale * unit;

	for (size_t i = 0; i < n; i++)
		code[i] = (int8_t)tsr_softsign_code(m[i] * unit, unit_scale);
}

INLINE void softsign_decode(const int8_t *restrict code, size_t n, float scale, float *restrict m)
{
	for (size_t i = 0; i < n; i++)
		m[i] = tsr_softsign_value(code[i], scale);
}

INLINE void linear_encode(const float *restrict m, size_t n, int8_t *restrict code, size_t g,
			  struct scale_out out)
{
	const float scale = put_scale(out.plane, out.format, g, group_absmax(m, n), TSR_E8M8_MAX,
				      out.report);
	const float unit = tsr_group_unit(scale);
	const float inverse = tsr_inverse_scale(127.0f, scale * unit);

	for (size_t i = 0; i < n; i++)
		code[i] = (int8_t)tsr_linear_code(m[i] * unit, inverse);
}

INLINE void linear_decode(const int8_t *restrict code, size_t n, float scale, float *restrict m)
{
	for (size_t i = 0; i < n; i++)
		m[i] = tsr_linear_value(code[i], scale);
}

/* Negative or NaN variances have no code; pack keeps such tensors raw. */
INLINE void sqrt_encode(const float *restrict v, size_t n, uint8_t *restrict code, size_t g,
			struct scale_out out)
{
	/* RN(sqrt) is monotonic: the largest root is the root of the largest. */
	const float max_root = __builtin_sqrtf(group_absmax(v, n));
	const float scale = put_scale(out.plane, out.format, g, max_root, TSR_E8M8_SQRT_MAX, out.report);
	const float inverse = tsr_inverse_scale(255.0f, scale);

	for (size_t i = 0; i < n; i++)
		code[i] = (uint8_t)tsr_sqrt_code(__builtin_sqrtf(v[i]), inverse);
}

INLINE void sqrt_decode(const uint8_t *restrict code, size_t n, float scale, float *restrict v)
{
	for (size_t i = 0; i < n; i++)
		v[i] = tsr_sqrt_value(code[i], scale);
}

INLINE void ulinear_encode(const float *restrict v, size_t n, uint8_t *restrict code, size_t g,
			   struct scale_out out)
{
	const float scale = put_scale(out.plane, out.format, g, group_absmax(v, n), TSR_E8M8_MAX,
				      out.report);
	const float unit = tsr_group_unit(scale);
	const float inverse = tsr_inverse_scale(255.0f, scale * unit);

	for (size_t i = 0; i < n; i++)
		code[i] = (uint8_t)tsr_ulinear_code(v[i] * unit, inverse);
}

INLINE void ulinear_decode(const uint8_t *restrict code, size_t n, float scale, float *restrict v)
{
	for (size_t i = 0; i < n; i++)
		v[i] = tsr_ulinear_value(code[i], scale);
}

/* --- Runs of groups ------------------------------------------------------------------------ */

#define DEFINE_GROUPED(id, text, mask, code_type, dtype, from, about) \
	INLINE void encode_runs_##id(const float *restrict x, size_t n, size_t group, \
				     code_type *restrict code, struct scale_out out) \
	{ \
		const size_t whole = n / group; \
\
		for (size_t g = 0; g < whole; g++) \
			id##_encode(x + g * group, group, code + g * group, g, out); \
		if (n % group) \
			id##_encode(x + whole * group, n % group, code + whole * group, whole, out); \
	} \
\
	static void encode_##id(const struct tsr_coding *coding, const float *restrict x, size_t n, \
				void *const plane[], struct tsr_encode_report *report) \
	{ \
		const struct scale_out out = { plane[1], coding->scale, report }; \
\
		if (coding->group == TSR_GROUP_DEFAULT) \
			encode_runs_##id(x, n, TSR_GROUP_DEFAULT, plane[0], out); \
		else \
			encode_runs_##id(x, n, coding->group, plane[0], out); \
	} \
\
	INLINE void decode_runs_##id(const code_type *restrict code, const void *scales, \
				     enum tsr_scale format, size_t n, size_t group, float *restrict x) \
	{ \
		const size_t whole = n / group; \
\
		for (size_t g = 0; g < whole; g++) \
			id##_decode(code + g * group, group, get_scale(scales, format, g), \
				    x + g * group); \
		if (n % group) \
			id##_decode(code + whole * group, n % group, get_scale(scales, format, whole), \
				    x + whole * group); \
	} \
\
	static void decode_##id(const struct tsr_coding *coding, const void *const plane[], size_t n, \
				float *restrict x) \
	{ \
		if (coding->group == TSR_GROUP_DEFAULT) \
			decode_runs_##id(plane[0], plane[1], coding->scale, n, TSR_GROUP_DEFAULT, x); \
		else \
			decode_runs_##id(plane[0], plane[1], coding->scale, n, coding->group, x); \
	} \
\
	const struct tsr_codec TSR_FOR_ISA(codec_##id##8) = { \
		.name = text, \
		.summary = about, \
		.source = from, \
		.kinds = mask, \
		.nplanes = 2, \
		.planes = { { "::quantized", TSR_PER_ELEMENT, dtype }, \
			    { "::scales", TSR_PER_GROUP, TSR_F32 } }, \
		.grouped = true, \
		.encode = encode_##id, \
		.decode = decode_##id, \
	}

DEFINE_GROUPED(softsign, "softsign8", TSR_KIND_MOMENTUM, int8_t, TSR_I8, "FlashOptim",
	       "8 bits after softsign companding");
DEFINE_GROUPED(linear, "linear8", TSR_KIND_MOMENTUM, int8_t, TSR_I8, "baseline", "8 bits, linear");
DEFINE_GROUPED(sqrt, "sqrt8", TSR_KIND_VARIANCE, uint8_t, TSR_U8, "FlashOptim",
	       "8 bits of the square root");
DEFINE_GROUPED(ulinear, "ulinear8", TSR_KIND_VARIANCE, uint8_t, TSR_U8, "baseline",
	       "8 bits, linear, unsigned");
