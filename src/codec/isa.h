/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CODEC_ISA_H
#define TSR_CODEC_ISA_H

#include "base/isa.h"
#include "tersor/codec.h"
#include "tersor/measure.h"

/* X(name1) X(name2) ...: the codecs of a family. */
#define TSR_1_TO_13(X, name) \
	X(name##1) \
	X(name##2) \
	X(name##3) \
	X(name##4) \
	X(name##5) \
	X(name##6) \
	X(name##7) \
	X(name##8) \
	X(name##9) \
	X(name##10) \
	X(name##11) \
	X(name##12) \
	X(name##13)
#define TSR_1_TO_16(X, name) \
	TSR_1_TO_13(X, name) \
	X(name##14) \
	X(name##15) \
	X(name##16)

/* Every codec, in the order that help and documentation show.  Adding one: a row here. */
#define TSR_CODEC_LIST(X) \
	X(bf16_ulp8) \
	X(bf16_ulp16) \
	X(fp16_ulp8) \
	X(fp16_ulp16) \
	X(bf16_exact16) \
	X(bf16_bf16) \
	X(fp16_fp16) \
	X(bf16) \
	X(fp16) \
	TSR_1_TO_16(X, bf16_trunc) \
	TSR_1_TO_13(X, fp16_trunc) \
	TSR_1_TO_16(X, bf16_sr) \
	TSR_1_TO_13(X, fp16_sr) \
	X(softsign8) \
	X(linear8) \
	X(sqrt8) \
	X(ulinear8) \
	X(f32)

typedef void tsr_measure_fn(struct tsr_measure *m, const float *x, const float *y, size_t n);

#define X_DECLARE_CODEC_BASE(id) extern const struct tsr_codec tsr_codec_##id##_base;
#define X_DECLARE_CODEC_AVX2(id) extern const struct tsr_codec tsr_codec_##id##_avx2;
#define X_DECLARE_CODEC_AVX512(id) extern const struct tsr_codec tsr_codec_##id##_avx512;
TSR_CODEC_LIST(X_DECLARE_CODEC_BASE)
TSR_CODEC_LIST(X_DECLARE_CODEC_AVX2)
TSR_CODEC_LIST(X_DECLARE_CODEC_AVX512)

typedef void tsr_encode_fn(const struct tsr_coding *coding, const float *x, size_t n,
			   void *const plane[], struct tsr_encode_report *report);

/* The encoder of sqrt8 for those who have the roots of the variances already. */
#define X_DECLARE_ENCODE_ROOTS(isa) extern tsr_encode_fn tsr_sqrt8_encode_roots_##isa;
TSR_ISA_LIST(X_DECLARE_ENCODE_ROOTS)

#define X_DECLARE_MEASURE(isa) extern tsr_measure_fn tsr_measure_add_##isa;
TSR_ISA_LIST(X_DECLARE_MEASURE)

#endif
