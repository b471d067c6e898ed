/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every codec, in the order that help and documentation show: the only list of them.  From it come
 * the tables of the CPU (codec/simd/codecs_simd.c), of sweeps (sweep/simd/trips.c, gpu/gpu_sweep.cu) and of
 * GPU kernels (gpu/gpu_codec.cu).
 *
 * X(id, each, loops, format, code, name, members...), in C and in CUDA:
 *
 * id       names its functions: tsr_encode_<id>_<SIMD level>, tsr_gpu_codec_<id>
 * each     1, or how many codecs the row makes: with 1, 2, ... extra bits, which end their names
 * loops    how it works: a macro of codec/simd/, where there is a faster way one of
 *          sweep/simd/trips.c, and a class template of gpu/, all with the next two as arguments
 * format   the narrow weight: formulas of math.h are called tsr_<format>_...; or the traits of a
 *          group in group_math.h
 * code     type of a code or a correction (of codes without one any); of extra bits how the narrow
 *          weight is rounded
 * members  of struct tsr_codec
 */
#ifndef TSR_CODEC_LIST_H
#define TSR_CODEC_LIST_H

/* Columns of the factors of a stage; low-rank codecs have one or two, the second of what the first leaves. */
#define TSR_RANK 16u
#define TSR_STAGES_MAX 2u

#define TSR_KIND_ANY (TSR_KIND_WEIGHT | TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE)

/* One float per element. */
#define TSR_ALONE(dtype) \
	.nplanes = 1, .planes = { { "", TSR_PER_ELEMENT, TSR_##dtype } }, .narrow = TSR_##dtype, \
	.parts = 1

/* A narrow weight, and a correction that divides its ULP into so many parts. */
#define TSR_CORRECTED(dtype, kind, plane, nparts) \
	.kinds = TSR_KIND_WEIGHT, .nplanes = 2, \
	.planes = { { "", TSR_PER_ELEMENT, TSR_##dtype }, \
		    { "::error_bits", TSR_PER_ELEMENT, TSR_##plane } }, \
	.narrow = TSR_##dtype, .correction = TSR_CORRECTION_##kind, .parts = nparts

/* A narrow weight, and extra bits. */
#define TSR_EXTENDED(dtype) \
	.kinds = TSR_KIND_WEIGHT, .nplanes = 2, \
	.planes = { { "", TSR_PER_ELEMENT, TSR_##dtype }, \
		    { "::extra_bits", TSR_BIT_PACKED, TSR_U32 } }, \
	.narrow = TSR_##dtype, .correction = TSR_CORRECTION_EXTRA_BITS, \
	.source = "extra-bits paper"

/* Codes with a scale per group. */
#define TSR_GROUPED(dtype, how, size, formats) \
	.nplanes = 2, \
	.planes = { { "::quantized", TSR_PER_ELEMENT, TSR_##dtype }, \
		    { "::scales", TSR_PER_GROUP, TSR_F32 } }, \
	.narrow = TSR_F32, .parts = 1, .grouped = true, .companding = TSR_COMPANDING_##how, \
	.group = size, .scales = formats

/* The same with codes of so many bits, packed; groups are of multiples of 32 elements. */
#define TSR_GROUPED_BITS(nbits, how, size, formats) \
	.nplanes = 2, \
	.planes = { { "::quantized", TSR_BIT_PACKED, TSR_U32 }, \
		    { "::scales", TSR_PER_GROUP, TSR_F32 } }, \
	.narrow = TSR_F32, .parts = 1, .code_bits = nbits, .grouped = true, .flat = true, \
	.companding = TSR_COMPANDING_##how, .group = size, .scales = formats

#define TSR_FULL_SCALE (1u << TSR_SCALE_E8M8 | 1u << TSR_SCALE_F32)
#define TSR_ANY_SCALE (1u << TSR_SCALE_E8M8 | 1u << TSR_SCALE_F16 | 1u << TSR_SCALE_F32)
#define TSR_COMPANDED(dtype, how) TSR_GROUPED(dtype, how, TSR_GROUP_DEFAULT, TSR_ANY_SCALE)

/* Codes that are tables, with a scale per group; and with the row of the table. */
#define TSR_TABLED(dtype, size) \
	.kinds = TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE, .flat = true, \
	TSR_GROUPED(dtype, FLOAT, size, 1u << TSR_SCALE_F32)
#define TSR_EXPANDED(dtype, size) \
	.kinds = TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE, .flat = true, .nplanes = 3, \
	.planes = { { "::quantized", TSR_PER_ELEMENT, TSR_##dtype }, \
		    { "::scales", TSR_PER_GROUP, TSR_F32 }, \
		    { "::expand", TSR_PER_GROUP_TOO, TSR_U8 } }, \
	.narrow = TSR_F32, .parts = 1, .grouped = true, .companding = TSR_COMPANDING_POWER, \
	.group = size, .scales = 1u << TSR_SCALE_F32

/* clang-format off */

/* Elements by themselves. */
#define TSR_SPLIT_LIST(X) \
	X(bf16_ulp8, 1, ulp_split, bf16, int8_t, "bf16+ulp8", \
	  .summary = "BF16 and an 8-bit correction in its ULP", .source = "FlashOptim", \
	  TSR_CORRECTED(BF16, ULP, I8, 2 * 127)) \
	X(bf16_ulp16, 1, ulp_split, bf16, int16_t, "bf16+ulp16", \
	  .summary = "BF16 and a 16-bit correction in its ULP", .source = "FlashOptim", \
	  TSR_CORRECTED(BF16, ULP, I16, 2 * 32767)) \
	X(fp16_ulp8, 1, ulp_split, f16, int8_t, "fp16+ulp8", \
	  .summary = "FP16 and an 8-bit correction in its ULP", .source = "FlashOptim", \
	  TSR_CORRECTED(F16, ULP, I8, 2 * 127)) \
	X(fp16_ulp16, 1, ulp_split, f16, int16_t, "fp16+ulp16", \
	  .summary = "FP16 and a 16-bit correction in its ULP", .source = "FlashOptim", \
	  TSR_CORRECTED(F16, ULP, I16, 2 * 32767)) \
	X(bf16_exact16, 1, exact_split, bf16, int16_t, "bf16+exact16", \
	  .summary = "BF16 and the other 16 bits: nothing is lost", .source = "tersor", \
	  TSR_CORRECTED(BF16, PATTERN, I16, 65536), .lossless = true) \
	/* A float of at most half an ULP: its own significand begins one bit further down. */ \
	X(bf16_bf16, 1, float_split, bf16, uint16_t, "bf16+bf16", \
	  .summary = "BF16 and a BF16 for what it leaves", \
	  .source = "Kahan buffer (Zamirai et al.)", TSR_CORRECTED(BF16, FLOAT, BF16, 1 << 9)) \
	X(fp16_fp16, 1, float_split, f16, uint16_t, "fp16+fp16", \
	  .summary = "FP16 and an FP16 for what it leaves", \
	  .source = "Kahan buffer (Zamirai et al.)", TSR_CORRECTED(F16, FLOAT, F16, 1 << 12), \
	  .finest = 0x1p-24) \
	X(bf16, 1, narrow_only, bf16, uint16_t, "bf16", .summary = "BF16 alone", \
	  .source = "baseline", .kinds = TSR_KIND_ANY, TSR_ALONE(BF16)) \
	X(fp16, 1, narrow_only, f16, uint16_t, "fp16", .summary = "FP16 alone", \
	  .source = "baseline", .kinds = TSR_KIND_WEIGHT, TSR_ALONE(F16))

/* A narrow weight and k bits that follow it, 32 elements in k words. */
#define TSR_PACKED_LIST(X) \
	X(bf16_trunc, 16, extra_bits, bf16, TSR_TOWARD_ZERO, "bf16+trunc", \
	  .summary = "BF16 toward zero and the next k bits", TSR_EXTENDED(BF16)) \
	X(fp16_trunc, 13, extra_bits, f16, TSR_TOWARD_ZERO, "fp16+trunc", \
	  .summary = "FP16 toward zero and the next k bits", TSR_EXTENDED(F16)) \
	X(e5m2_trunc, 16, extra_bits, e5m2, TSR_TOWARD_ZERO, "e5m2+trunc", \
	  .summary = "FP8 (E5M2) toward zero and the next k bits", TSR_EXTENDED(F8_E5M2)) \
	X(e4m3_trunc, 16, extra_bits, e4m3, TSR_TOWARD_ZERO, "e4m3+trunc", \
	  .summary = "FP8 (E4M3) toward zero and the next k bits", TSR_EXTENDED(F8_E4M3)) \
	X(bf16_rn, 13, extra_bits, bf16, TSR_TO_NEAREST, "bf16+rn", \
	  .summary = "BF16 and a k-bit correction in its ULP", TSR_EXTENDED(BF16)) \
	X(bf16_sr, 16, extra_bits, bf16, TSR_AT_RANDOM, "bf16+sr", .stochastic = true, \
	  .summary = "BF16 rounded at random, k bits, 1 undoes it", TSR_EXTENDED(BF16)) \
	X(fp16_sr, 13, extra_bits, f16, TSR_AT_RANDOM, "fp16+sr", .stochastic = true, \
	  .summary = "FP16 rounded at random, k bits, 1 undoes it", TSR_EXTENDED(F16)) \
	X(e5m2_sr, 16, extra_bits, e5m2, TSR_AT_RANDOM, "e5m2+sr", .stochastic = true, \
	  .summary = "E5M2 rounded at random, k bits, 1 undoes it", TSR_EXTENDED(F8_E5M2)) \
	X(e4m3_sr, 16, extra_bits, e4m3, TSR_AT_RANDOM, "e4m3+sr", .stochastic = true, \
	  .summary = "E4M3 rounded at random, k bits, 1 undoes it", TSR_EXTENDED(F8_E4M3))

/* Groups that share a scale. */
#define TSR_GROUPED_LIST(X) \
	X(softsign8, 1, grouped, softsign, int8_t, "softsign8", \
	  .summary = "8 bits after softsign companding", .source = "FlashOptim", \
	  .kinds = TSR_KIND_MOMENTUM, TSR_COMPANDED(I8, SOFTSIGN)) \
	X(ratio8, 1, grouped, softsign, int8_t, "ratio8", .relative = true, \
	  .summary = "softsign8 of the ratio to the variance's root", .source = "tersor", \
	  .kinds = TSR_KIND_MOMENTUM, TSR_GROUPED(I8, SOFTSIGN, 64, TSR_ANY_SCALE)) \
	X(linear8, 1, grouped, linear, int8_t, "linear8", .summary = "8 bits, linear", \
	  .source = "baseline", .kinds = TSR_KIND_MOMENTUM, TSR_COMPANDED(I8, LINEAR)) \
	X(sqrt8, 1, grouped, sqrt, uint8_t, "sqrt8", .summary = "8 bits of the square root", \
	  .source = "FlashOptim", .kinds = TSR_KIND_VARIANCE, TSR_COMPANDED(U8, SQRT), \
	  .contexts = TSR_CONTEXTS_ROOTS, .encode_roots = TSR_FOR_ISA(encode_sqrt8_roots)) \
	X(ulinear8, 1, grouped, ulinear, uint8_t, "ulinear8", \
	  .summary = "8 bits, linear, unsigned", .source = "baseline", \
	  .kinds = TSR_KIND_VARIANCE, TSR_COMPANDED(U8, LINEAR))

/* The same, with codes that are tables: table_math.h has tsr_<format>_rule(). */
#define TSR_TABLED_LIST(X) \
	X(e4m3, 1, tabled, e4m3, uint8_t, "e4m3", .summary = "FP8 E4M3", .source = "COAT", \
	  TSR_TABLED(F8_E4M3, 128)) \
	X(e5m2, 1, tabled, e5m2, uint8_t, "e5m2", .summary = "FP8 E5M2", .source = "COAT", \
	  TSR_TABLED(F8_E5M2, 128)) \
	X(e4m3x, 1, expanded, e4m3x, uint8_t, "e4m3x", \
	  .summary = "FP8 E4M3, its range fitted to the group", .source = "COAT", \
	  TSR_EXPANDED(F8_E4M3, 128)) \
	X(e5m2x, 1, expanded, e5m2x, uint8_t, "e5m2x", \
	  .summary = "FP8 E5M2, its range fitted to the group", .source = "COAT", \
	  TSR_EXPANDED(F8_E5M2, 128)) \
	X(dyn8, 1, tabled, dynamic, uint8_t, "dyn8", \
	  .summary = "8 bits, finer near zero by decades", .source = "bitsandbytes", \
	  TSR_TABLED(U8, 256))

/* Logarithms of roots, with a scale and a range per group. */
#define TSR_LOG_LIST(X) \
	X(log8, 1, logarithmic, log, uint8_t, "log8", .summary = "8 bits of the root's logarithm", \
	  .source = "tersor", .kinds = TSR_KIND_VARIANCE, \
	  .contexts = TSR_CONTEXTS_LOGS, .encode_roots = TSR_FOR_ISA(encode_log8_roots), \
	  TSR_GROUPED(U8, LOG, 64, 1u << TSR_SCALE_F28))

/*
 * The families of ratio8 and log8 with other numbers of bits, which are in the column of the code: of ratios
 * the traits of a group in group_math.h, with its largest magnitude or its root mean square as the scale; of
 * logarithms the set of tables.
 */
#define TSR_PACKED_GROUP_LIST(X) \
	X(ratio10, 1, packed_peak, softsign10, 10, "ratio10", .relative = true, \
	  .summary = "ratio8 in 10 bits", .source = "tersor", .kinds = TSR_KIND_MOMENTUM, \
	  TSR_GROUPED_BITS(10, SOFTSIGN, 64, TSR_FULL_SCALE)) \
	X(ratio9, 1, packed_peak, softsign9, 9, "ratio9", .relative = true, \
	  .summary = "ratio8 in 9 bits", .source = "tersor", .kinds = TSR_KIND_MOMENTUM, \
	  TSR_GROUPED_BITS(9, SOFTSIGN, 64, TSR_FULL_SCALE)) \
	X(ratio4, 1, packed_rms, max4, 4, "ratio4", .relative = true, .no_zero = true, \
	  .summary = "the ratio in 16 levels of a normal distribution", .source = "tersor", \
	  .kinds = TSR_KIND_MOMENTUM, TSR_GROUPED_BITS(4, FLOAT, 64, 1u << TSR_SCALE_E5M3)) \
	X(ratio3, 1, packed_rms, max3, 3, "ratio3", .relative = true, .no_zero = true, \
	  .summary = "the ratio in 8 levels of a normal distribution", .source = "tersor", \
	  .kinds = TSR_KIND_MOMENTUM, TSR_GROUPED_BITS(3, FLOAT, 64, 1u << TSR_SCALE_E5M3))
#define TSR_PACKED_LOG_LIST(X) \
	X(log7, 1, packed_log, LOG7, 7, "log7", .summary = "log8 in 7 bits", .source = "tersor", \
	  .kinds = TSR_KIND_VARIANCE, TSR_GROUPED_BITS(7, LOG, 128, 1u << TSR_SCALE_F28)) \
	X(log6, 1, packed_log, LOG6, 6, "log6", .summary = "log8 in 6 bits", .source = "tersor", \
	  .kinds = TSR_KIND_VARIANCE, TSR_GROUPED_BITS(6, LOG, 128, 1u << TSR_SCALE_F28)) \
	X(log4, 1, packed_log, LOG4, 4, "log4", .summary = "log8 in 4 bits", .source = "tersor", \
	  .kinds = TSR_KIND_VARIANCE, TSR_GROUPED_BITS(4, LOG, 256, 1u << TSR_SCALE_F28)) \
	X(log3, 1, packed_log, LOG3, 3, "log3", .summary = "log8 in 3 bits", .source = "tersor", \
	  .kinds = TSR_KIND_VARIANCE, TSR_GROUPED_BITS(3, LOG, 256, 1u << TSR_SCALE_F28))

/* FP32. */
#define TSR_PLAIN_LIST(X) \
	X(f32, 1, plain, float, float, "f32", .summary = "as it is", .source = "baseline", \
	  .kinds = TSR_KIND_ANY, TSR_ALONE(F32), .lossless = true)

/*
 * A matrix as the product of two factors, and what that leaves in the codec that the name ends in.  These and
 * learned codecs are not among TSR_CODEC_LIST(), whose codecs need no data but the elements.
 */
#define TSR_LOWRANK(nstages) \
	.source = "tersor", .kinds = TSR_KIND_MOMENTUM, .rank = (nstages) * TSR_RANK, .nplanes = 3, \
	.planes = { { "::quantized", TSR_PER_ELEMENT, TSR_I8 }, \
		    { "::scales", TSR_PER_GROUP, TSR_F32 }, \
		    { "::factors", TSR_PER_ROW, TSR_U8 } }, \
	.narrow = TSR_F32, .parts = 1, .grouped = true, .companding = TSR_COMPANDING_LINEAR, \
	.group = TSR_GROUP_DEFAULT, .scales = TSR_FULL_SCALE
#define TSR_LOWRANK_LIST(X) \
	X(lowrank16_linear8, 1, lowrank, linear8, int8_t, "lowrank16+linear8", \
	  .summary = "linear8 of what rank 16 leaves of a matrix", TSR_LOWRANK(1)) \
	X(lowrank32_linear8, 1, lowrank, linear8, int8_t, "lowrank32+linear8", \
	  .summary = "linear8 of what rank 32 leaves of a matrix", TSR_LOWRANK(2))

/* Momenta by a codebook and variances as means, in blocks: both are learned from the data. */
#define TSR_LEARNED_LIST(X) \
	X(gefen8, 1, learned, gefen, uint8_t, "gefen8", \
	  .summary = "8-bit entries of a learned codebook", .source = "Gefen", \
	  .kinds = TSR_KIND_MOMENTUM, .learned = true, .has_codebook = true, \
	  TSR_GROUPED(U8, NONE, 1, 1u << TSR_SCALE_F32)) \
	X(blockmean, 1, learned, gefen, float, "blockmean", .summary = "a mean per block", \
	  .source = "Gefen", .kinds = TSR_KIND_VARIANCE, .learned = true, .nplanes = 1, \
	  .planes = { { "::blockmean", TSR_PER_GROUP, TSR_F32 } }, .narrow = TSR_F32, .parts = 1, \
	  .grouped = true, .group = 1, .scales = 1u << TSR_SCALE_F32) \
	TSR_LOWRANK_LIST(X)

#define TSR_CODEC_LIST(X) \
	TSR_SPLIT_LIST(X) TSR_PACKED_LIST(X) TSR_GROUPED_LIST(X) TSR_LOG_LIST(X) \
	TSR_PACKED_GROUP_LIST(X) TSR_PACKED_LOG_LIST(X) TSR_TABLED_LIST(X) TSR_PLAIN_LIST(X)

/* X(1, ...) X(2, ...) and so on: what a row with `each` of 13 or 16 makes. */
#define TSR_EACH_13(X, ...) \
	X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) \
	X(6, __VA_ARGS__) X(7, __VA_ARGS__) X(8, __VA_ARGS__) X(9, __VA_ARGS__) X(10, __VA_ARGS__) \
	X(11, __VA_ARGS__) X(12, __VA_ARGS__) X(13, __VA_ARGS__)
#define TSR_EACH_16(X, ...) \
	TSR_EACH_13(X, __VA_ARGS__) X(14, __VA_ARGS__) X(15, __VA_ARGS__) X(16, __VA_ARGS__)

/* clang-format on */

/* The `row` of struct tsr_codec: the index in tables of codecs.  A codec of the caller has none. */
enum tsr_codec_row {
	TSR_ROW_NONE,
#define X(id, ...) TSR_ROW_##id,
	TSR_CODEC_LIST(X)
#undef X
		TSR_ROWS
};

#endif
