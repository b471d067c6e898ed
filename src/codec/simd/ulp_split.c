/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ULP split: a narrow weight and an 8 or 16 bit correction in units of half its ULP.
 * FlashOptim, Algorithm 1.
 */
#include "codec/isa.h"
#include "codec/simd/lanes_f16.h"
#include "codec/math.h"

#define DEFINE_LOOPS(id, format, narrow_of, round_of, widen, code, levels) \
	static void encode_run_##id(const float *restrict x, size_t n, uint16_t *restrict narrow, \
				    code *restrict correction) \
	{ \
		for (size_t i = 0; i < n; i++) { \
			narrow[i] = (uint16_t)narrow_of(x[i]); \
			correction[i] = (code)tsr_ulp_correction(format(), x[i], round_of(x[i]), \
								 levels); \
		} \
	} \
\
	static void decode_run_##id(const uint16_t *restrict narrow, \
				    const code *restrict correction, size_t n, float *restrict x) \
	{ \
		for (size_t i = 0; i < n; i++) \
			x[i] = tsr_ulp_join(format(), widen(narrow[i]), correction[i], levels); \
	}

DEFINE_LOOPS(bf16_ulp8, tsr_split_bf16, tsr_bf16_from_f32, tsr_bf16_round, tsr_f32_from_bf16,
	     int8_t, 127.0f)
DEFINE_LOOPS(bf16_ulp16, tsr_split_bf16, tsr_bf16_from_f32, tsr_bf16_round, tsr_f32_from_bf16,
	     int16_t, 32767.0f)
DEFINE_LOOPS(fp16_ulp8, tsr_split_f16, tsr_f16_from_f32, tsr_f16_round, tsr_f32_from_f16, int8_t,
	     127.0f)
DEFINE_LOOPS(fp16_ulp16, tsr_split_f16, tsr_f16_from_f32, tsr_f16_round, tsr_f32_from_f16, int16_t,
	     32767.0f)

#define DEFINE_ULP_SPLIT(id, text, narrow_dtype, code, code_dtype, most, about) \
	static void encode_##id(const struct tsr_coding *coding, const float *x, size_t n, \
				void *const plane[], struct tsr_encode_report *report) \
	{ \
		uint16_t *narrow = plane[0]; \
		code *correction = plane[1]; \
		size_t done = 0; \
\
		(void)coding; \
		(void)report; \
		most(done, n, lanes_encode_##id(x + done, narrow + done, correction + done), \
		     encode_run_##id(x + done, LANES_RUN, narrow + done, correction + done)); \
		encode_run_##id(x + done, n - done, narrow + done, correction + done); \
	} \
\
	static void decode_##id(const struct tsr_coding *coding, const void *const plane[], \
				size_t n, float *x) \
	{ \
		const uint16_t *narrow = plane[0]; \
		const code *correction = plane[1]; \
		size_t done = 0; \
\
		(void)coding; \
		most(done, n, lanes_decode_##id(narrow + done, correction + done, x + done), \
		     decode_run_##id(narrow + done, correction + done, LANES_RUN, x + done)); \
		decode_run_##id(narrow + done, correction + done, n - done, x + done); \
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

DEFINE_ULP_SPLIT(bf16_ulp8, "bf16+ulp8", TSR_BF16, int8_t, TSR_I8, LANES_MOST_IF_WIDEST,
		 "BF16 and an 8-bit correction in its ULP");
DEFINE_ULP_SPLIT(bf16_ulp16, "bf16+ulp16", TSR_BF16, int16_t, TSR_I16, LANES_MOST_IF_WIDEST,
		 "BF16 and a 16-bit correction in its ULP");
DEFINE_ULP_SPLIT(fp16_ulp8, "fp16+ulp8", TSR_F16, int8_t, TSR_I8, LANES_MOST,
		 "FP16 and an 8-bit correction in its ULP");
DEFINE_ULP_SPLIT(fp16_ulp16, "fp16+ulp16", TSR_F16, int16_t, TSR_I16, LANES_MOST,
		 "FP16 and a 16-bit correction in its ULP");
