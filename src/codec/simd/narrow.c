/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow floats: alone, or with a second one for what the first leaves (float split). */
#include <string.h>

#include "codec/isa.h"
#include "codec/simd/lanes_f16.h"
#include "codec/math.h"

#define DEFINE_NARROW(id, text, mask, dtype, narrow_of, widen, most, about) \
	static void encode_run_##id(const float *restrict x, size_t n, uint16_t *restrict narrow) \
	{ \
		for (size_t i = 0; i < n; i++) \
			narrow[i] = (uint16_t)narrow_of(x[i]); \
	} \
\
	static void decode_run_##id(const uint16_t *restrict narrow, size_t n, float *restrict x) \
	{ \
		for (size_t i = 0; i < n; i++) \
			x[i] = widen(narrow[i]); \
	} \
\
	static void encode_##id(const struct tsr_coding *coding, const float *x, size_t n, \
				void *const plane[], struct tsr_encode_report *report) \
	{ \
		uint16_t *narrow = plane[0]; \
		size_t done = 0; \
\
		(void)coding; \
		(void)report; \
		most(done, n, lanes_encode_##id(x + done, narrow + done), \
		     encode_run_##id(x + done, LANES_RUN, narrow + done)); \
		encode_run_##id(x + done, n - done, narrow + done); \
	} \
\
	static void decode_##id(const struct tsr_coding *coding, const void *const plane[], \
				size_t n, float *x) \
	{ \
		const uint16_t *narrow = plane[0]; \
		size_t done = 0; \
\
		(void)coding; \
		most(done, n, lanes_decode_##id(narrow + done, x + done), \
		     decode_run_##id(narrow + done, LANES_RUN, x + done)); \
		decode_run_##id(narrow + done, n - done, x + done); \
	} \
\
	const struct tsr_codec TSR_FOR_ISA(codec_##id) = { \
		.name = text, \
		.summary = about, \
		.source = "baseline", \
		.kinds = mask, \
		.nplanes = 1, \
		.planes = { { "", TSR_PER_ELEMENT, dtype } }, \
		.encode = encode_##id, \
		.decode = decode_##id, \
	}

#define DEFINE_FLOAT_SPLIT(id, text, dtype, narrow_of, round_of, rest_of, widen, most, about) \
	static void encode_run_##id(const float *restrict x, size_t n, uint16_t *restrict narrow, \
				    uint16_t *restrict rest) \
	{ \
		for (size_t i = 0; i < n; i++) { \
			narrow[i] = (uint16_t)narrow_of(x[i]); \
			rest[i] = (uint16_t)rest_of(tsr_float_rest(x[i], round_of(x[i]))); \
		} \
	} \
\
	static void decode_run_##id(const uint16_t *restrict narrow, \
				    const uint16_t *restrict rest, size_t n, float *restrict x) \
	{ \
		for (size_t i = 0; i < n; i++) \
			x[i] = tsr_float_join(widen(narrow[i]), widen(rest[i])); \
	} \
\
	static void encode_##id(const struct tsr_coding *coding, const float *x, size_t n, \
				void *const plane[], struct tsr_encode_report *report) \
	{ \
		uint16_t *narrow = plane[0], *rest = plane[1]; \
		size_t done = 0; \
\
		(void)coding; \
		(void)report; \
		most(done, n, lanes_encode_##id(x + done, narrow + done, rest + done), \
		     encode_run_##id(x + done, LANES_RUN, narrow + done, rest + done)); \
		encode_run_##id(x + done, n - done, narrow + done, rest + done); \
	} \
\
	static void decode_##id(const struct tsr_coding *coding, const void *const plane[], \
				size_t n, float *x) \
	{ \
		const uint16_t *narrow = plane[0], *rest = plane[1]; \
		size_t done = 0; \
\
		(void)coding; \
		most(done, n, lanes_decode_##id(narrow + done, rest + done, x + done), \
		     decode_run_##id(narrow + done, rest + done, LANES_RUN, x + done)); \
		decode_run_##id(narrow + done, rest + done, n - done, x + done); \
	} \
\
	const struct tsr_codec TSR_FOR_ISA(codec_##id) = { \
		.name = text, \
		.summary = about, \
		.source = "Kahan buffer (Zamirai et al.)", \
		.kinds = TSR_KIND_WEIGHT, \
		.nplanes = 2, \
		.planes = { { "", TSR_PER_ELEMENT, dtype }, \
			    { "::error_bits", TSR_PER_ELEMENT, dtype } }, \
		.encode = encode_##id, \
		.decode = decode_##id, \
	}

DEFINE_NARROW(bf16, "bf16", TSR_KIND_WEIGHT | TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE, TSR_BF16,
	      tsr_bf16_from_f32, tsr_f32_from_bf16, LANES_NONE, "BF16 alone");
DEFINE_NARROW(fp16, "fp16", TSR_KIND_WEIGHT, TSR_F16, tsr_f16_from_f32, tsr_f32_from_f16,
	      LANES_MOST, "FP16 alone");
DEFINE_FLOAT_SPLIT(bf16_bf16, "bf16+bf16", TSR_BF16, tsr_bf16_from_f32, tsr_bf16_round,
		   tsr_bf16_from_f32, tsr_f32_from_bf16, LANES_NONE,
		   "BF16 and a BF16 for what it leaves");
/* What is left is half an ULP, at most 16. */
DEFINE_FLOAT_SPLIT(fp16_fp16, "fp16+fp16", TSR_F16, tsr_f16_from_f32, tsr_f16_round,
		   tsr_f16_from_small_f32, tsr_f32_from_f16, LANES_MOST,
		   "FP16 and an FP16 for what it leaves");

static void encode_f32(const struct tsr_coding *coding, const float *x, size_t n,
		       void *const plane[], struct tsr_encode_report *report)
{
	(void)coding;
	(void)report;
	memcpy(plane[0], x, n * sizeof(*x));
}

static void decode_f32(const struct tsr_coding *coding, const void *const plane[], size_t n,
		       float *x)
{
	(void)coding;
	memcpy(x, plane[0], n * sizeof(*x));
}

const struct tsr_codec TSR_FOR_ISA(codec_f32) = {
	.name = "f32",
	.summary = "as it is",
	.source = "baseline",
	.kinds = TSR_KIND_WEIGHT | TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE,
	.nplanes = 1,
	.planes = { { "", TSR_PER_ELEMENT, TSR_F32 } },
	.lossless = true,
	.encode = encode_f32,
	.decode = decode_f32,
};
