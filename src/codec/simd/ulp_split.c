/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ULP split: a narrow weight and an 8 or 16 bit correction in units of half its ULP.
 * FlashOptim, Algorithm 1.
 */
#include "codec/isa.h"
#include "tersor/math.h"

#define DEFINE_ULP_SPLIT(id, text, format, narrow_dtype, narrow_of, round_of, widen, code, \
			 code_dtype, levels, about) \
	static void encode_##id(const struct tsr_coding *coding, const float *restrict x, \
				size_t n, void *const plane[], struct tsr_encode_report *report) \
	{ \
		uint16_t *restrict narrow = plane[0]; \
		code *restrict correction = plane[1]; \
\
		(void)coding; \
		(void)report; \
		for (size_t i = 0; i < n; i++) { \
			narrow[i] = (uint16_t)narrow_of(x[i]); \
			correction[i] = (code)tsr_ulp_correction(format(), x[i], round_of(x[i]), \
								 levels); \
		} \
	} \
\
	static void decode_##id(const struct tsr_coding *coding, const void *const plane[], \
				size_t n, float *restrict x) \
	{ \
		const uint16_t *restrict narrow = plane[0]; \
		const code *restrict correction = plane[1]; \
\
		(void)coding; \
		for (size_t i = 0; i < n; i++) \
			x[i] = tsr_ulp_join(format(), widen(narrow[i]), correction[i], levels); \
	} \
\
	const struct tsr_codec TSR_FOR_ISA(codec_##id) = { \
		.name = text, \
		.summary = about, \
		.source = "FlashOptim", \
		.kinds = TSR_KIND_WEIGHT, \
		.nplanes = 2, \
		.planes = { { "", TSR_PER_ELEMENT, narrow_dtype }, \
			    { "::error_bits", TSR_PER_ELEMENT, code_dtype } }, \
		.encode = encode_##id, \
		.decode = decode_##id, \
	}

DEFINE_ULP_SPLIT(bf16_ulp8, "bf16+ulp8", tsr_split_bf16, TSR_BF16, tsr_bf16_from_f32,
		 tsr_bf16_round, tsr_f32_from_bf16, int8_t, TSR_I8, 127.0f,
		 "BF16 and an 8-bit correction in its ULP");
DEFINE_ULP_SPLIT(bf16_ulp16, "bf16+ulp16", tsr_split_bf16, TSR_BF16, tsr_bf16_from_f32,
		 tsr_bf16_round, tsr_f32_from_bf16, int16_t, TSR_I16, 32767.0f,
		 "BF16 and a 16-bit correction in its ULP");
DEFINE_ULP_SPLIT(fp16_ulp8, "fp16+ulp8", tsr_split_f16, TSR_F16, tsr_f16_from_f32, tsr_f16_round,
		 tsr_f32_from_f16, int8_t, TSR_I8, 127.0f,
		 "FP16 and an 8-bit correction in its ULP");
DEFINE_ULP_SPLIT(fp16_ulp16, "fp16+ulp16", tsr_split_f16, TSR_F16, tsr_f16_from_f32, tsr_f16_round,
		 tsr_f32_from_f16, int16_t, TSR_I16, 32767.0f,
		 "FP16 and a 16-bit correction in its ULP");
