/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codecs of a SIMD level: the rows of list.h. */
#include "codec/loops.h"

#define ALL_OF(id) \
	.row = TSR_ROW_##id, .encode = TSR_FOR_ISA(encode_##id), .decode = TSR_FOR_ISA(decode_##id)

/* Whether nothing is left behind k extra bits. */
#define ALL_BITS_bf16(k) ((k) == 16)
#define ALL_BITS_f16(k) false
#define ALL_BITS_e5m2(k) false
#define ALL_BITS_e4m3(k) false

/* A codec on its own, and one of a family, with k extra bits. */
#define EACH_1(format, id, text, ...) \
	&(const struct tsr_codec){ .name = text, ALL_OF(id), __VA_ARGS__ },
#define EXTENDED(k, format, id, text, ...) \
	&(const struct tsr_codec){ .name = text #k, \
				   .family = text "<k>", \
				   .parts = 1u << k, \
				   .extra_bits = k, \
				   .lossless = ALL_BITS_##format(k), \
				   ALL_OF(id), \
				   __VA_ARGS__ },
#define EACH_13(...) TSR_EACH_13(EXTENDED, __VA_ARGS__)
#define EACH_16(...) TSR_EACH_16(EXTENDED, __VA_ARGS__)

#define X(id, each, loops, format, code, ...) EACH_##each(format, id, __VA_ARGS__)
const struct tsr_codec *const TSR_FOR_ISA(codecs)[] = { TSR_CODEC_LIST(X) NULL };
#undef X

#define X(id, each, loops, format, code, text, ...) \
	&(const struct tsr_codec){ .name = text, \
				   .encode = TSR_FOR_ISA(encode_##id), \
				   .decode = TSR_FOR_ISA(decode_##id), \
				   __VA_ARGS__ },
const struct tsr_codec *const TSR_FOR_ISA(learned_codecs)[] = { TSR_LEARNED_LIST(X) NULL };
