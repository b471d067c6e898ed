/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs that store each element by itself: narrow weights, with or without a correction, and FP32. */
#include <string.h>

#include "codec/loops.h"
#include "codec/simd/lanes_f16.h"
#include "codec/math.h"

/* --- An element: its narrow weight and the correction, by the formulas ------------------------ */

/* FlashOptim, Algorithm 1: a correction in units of half the ULP of the narrow weight. */
#define ENCODE_ulp_split(format, code) \
	narrow[i] = (uint16_t)tsr_##format##_from_f32(x[i]); \
	rest[i] = (code)tsr_ulp_correction(tsr_split_##format(), x[i], tsr_##format##_round(x[i]), \
					   TSR_LEVELS(code))
#define DECODE_ulp_split(format, code) \
	tsr_ulp_join(tsr_split_##format(), tsr_f32_from_##format(narrow[i]), rest[i], \
		     TSR_LEVELS(code))

/* The difference of the two bit patterns. */
#define ENCODE_exact_split(format, code) \
	const uint32_t n16 = tsr_exact16_narrow(x[i]); \
\
	narrow[i] = (uint16_t)n16; \
	rest[i] = (code)tsr_exact16_correction(x[i], n16); \
	overflow += (uint32_t)tsr_exact16_overflows(x[i])
#define DECODE_exact_split(format, code) tsr_exact16_join(narrow[i], rest[i])

/* A second narrow float for what the first leaves. */
#define ENCODE_float_split(format, code) \
	narrow[i] = (uint16_t)tsr_##format##_from_f32(x[i]); \
	rest[i] = (code)tsr_##format##_from_rest(tsr_float_rest(x[i], tsr_##format##_round(x[i])))
#define DECODE_float_split(format, code) \
	tsr_float_join(tsr_f32_from_##format(narrow[i]), tsr_f32_from_##format(rest[i]))

/* Without a second plane, `rest` is an unused alias of the first. */
#define ENCODE_narrow_only(format, code) narrow[i] = (uint16_t)tsr_##format##_from_f32(x[i])
#define DECODE_narrow_only(format, code) tsr_f32_from_##format(narrow[i])

#define NPLANES_ulp_split 2
#define NPLANES_exact_split 2
#define NPLANES_float_split 2
#define NPLANES_narrow_only 1

/* --- Arrays: with lanes.h where that is faster ------------------------------------------------- */

#define FAST_ulp_split_bf16 LANES_MOST_IF_WIDEST
#define FAST_ulp_split_f16 LANES_MOST
#define FAST_exact_split_bf16 LANES_NONE
#define FAST_float_split_bf16 LANES_NONE
#define FAST_float_split_f16 LANES_MOST
#define FAST_narrow_only_bf16 LANES_NONE
#define FAST_narrow_only_f16 LANES_MOST

#define X(id, each, loops, format, code, ...) \
	static uint32_t encode_run_##id(const float *restrict x, size_t n, \
					uint16_t *restrict narrow, code *restrict rest) \
	{ \
		uint32_t overflow = 0; \
\
		(void)rest; \
		for (size_t i = 0; i < n; i++) { \
			ENCODE_##loops(format, code); \
		} \
		return overflow; \
	} \
\
	static void decode_run_##id(const uint16_t *restrict narrow, const code *restrict rest, \
				    size_t n, float *restrict x) \
	{ \
		(void)rest; \
		for (size_t i = 0; i < n; i++) \
			x[i] = DECODE_##loops(format, code); \
	} \
\
	void TSR_FOR_ISA(encode_##id)(const struct tsr_coding *coding, const float *x, size_t n, \
				      void *const plane[], struct tsr_encode_report *report) \
	{ \
		uint16_t *narrow = plane[0]; \
		code *rest = plane[NPLANES_##loops - 1]; \
		size_t done = 0; \
\
		(void)coding; \
		FAST_##loops##_##format( \
			done, n, lanes_encode_##id(x + done, narrow + done, rest + done), \
			encode_run_##id(x + done, LANES_BATCH, narrow + done, rest + done)); \
		report->narrow_overflow += encode_run_##id(x + done, n - done, narrow + done, \
							   rest + done); \
	} \
\
	void TSR_FOR_ISA(decode_##id)(const struct tsr_coding *coding, const void *const plane[], \
				      size_t n, float *x) \
	{ \
		const uint16_t *narrow = plane[0]; \
		const code *rest = plane[NPLANES_##loops - 1]; \
		size_t done = 0; \
\
		(void)coding; \
		FAST_##loops##_##format( \
			done, n, lanes_decode_##id(narrow + done, rest + done, x + done), \
			decode_run_##id(narrow + done, rest + done, LANES_BATCH, x + done)); \
		decode_run_##id(narrow + done, rest + done, n - done, x + done); \
	}
TSR_SPLIT_LIST(X)

/* --- FP32 -------------------------------------------------------------------------------------- */

void TSR_FOR_ISA(encode_f32)(const struct tsr_coding *coding, const float *x, size_t n,
			     void *const plane[], struct tsr_encode_report *report)
{
	(void)coding;
	(void)report;
	memcpy(plane[0], x, n * sizeof(*x));
}

void TSR_FOR_ISA(decode_f32)(const struct tsr_coding *coding, const void *const plane[], size_t n,
			     float *x)
{
	(void)coding;
	memcpy(x, plane[0], n * sizeof(*x));
}
