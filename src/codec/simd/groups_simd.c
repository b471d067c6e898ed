/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit optimizer state with a scale per group: softsign8 (momentum) and sqrt8 (variance) of
 * FlashOptim, Algorithms 2 and 3, and their linear baselines.
 *
 * Groups of the usual sizes get copies of the loops in which the size is a constant.  A group of 64 is
 * two blocks of 32 with one scale.
 */
#include <string.h>

#include "codec/loops.h"
#include "codec/simd/absmax.h"
#include "codec/simd/lanes.h"
#include "codec/group_math.h"

#define INLINE static inline __attribute__((always_inline))

/* Groups whose scales are computed together, in SIMD lanes. */
#define BATCH 64

struct scale_out {
	void *plane;
	enum tsr_scale format;
	uint32_t e8m8_max;
	struct tsr_encode_report *report;
};

/*
 * Store @n scales from entry @first on, and replace them by the ones that the encoder divides by.
 * e8m8 divides by what is stored; f16 is FlashOptim's, which rounds only what it stores.
 */
INLINE void put_scales(struct scale_out out, size_t first, size_t n, float *scale)
{
	uint16_t *narrow = (uint16_t *)out.plane + first;

	switch (out.format) {
	case TSR_SCALE_E8M8:
		for (size_t g = 0; g < n; g++) {
			const uint32_t code = tsr_e8m8_from_f32(scale[g]);
			const uint32_t capped = code < out.e8m8_max ? code : out.e8m8_max;

			narrow[g] = (uint16_t)capped;
			scale[g] = tsr_f32_from_e8m8(capped);
		}
		break;
	case TSR_SCALE_F16:
		for (size_t g = 0; g < n; g++) {
			narrow[g] = (uint16_t)tsr_f16_from_f32(scale[g]);
			out.report->scale_underflow += narrow[g] == 0 && scale[g] > 0.0f;
			out.report->scale_overflow += narrow[g] >= 0x7c00;
			scale[g] = tsr_f16_divisor(scale[g]);
		}
		break;
	default:
		memcpy((float *)out.plane + first, scale, n * sizeof(*scale));
	}
}

/* @n scales from entry @first on. */
INLINE void get_scales(const void *plane, enum tsr_scale format, size_t first, size_t n,
		       float *restrict scale)
{
	const uint16_t *narrow = (const uint16_t *)plane + first;

	switch (format) {
	case TSR_SCALE_E8M8:
		for (size_t g = 0; g < n; g++)
			scale[g] = tsr_f32_from_e8m8(narrow[g]);
		break;
	case TSR_SCALE_F16:
		for (size_t g = 0; g < n; g++)
			scale[g] = tsr_f32_from_f16(narrow[g]);
		break;
	default:
		memcpy(scale, (const float *)plane + first, n * sizeof(*scale));
	}
}

/* The scales of the row after the one whose scales these are. */
INLINE void *next_scales(const struct tsr_coding *coding, const void *scales)
{
	const size_t nbytes = coding->scale == TSR_SCALE_F32 ? sizeof(float) : sizeof(uint16_t);

	return (char *)scales + tsr_coding_row_groups(coding) * nbytes;
}

/* The same value, of which the compiler knows nothing. */
INLINE float hidden(float x)
{
	uint32_t bits = tsr_bits_from_f32(x);

	__asm__("" : "+r"(bits));
	return tsr_f32_from_bits(bits);
}

/* --- Ordinary groups of the default size ----------------------------------------------------- */

/*
 * What lanes.h codes like the formulas: groups whose largest magnitude is at most `peak` and whose
 * scale is 0 or at least `scale`.  Their unit is 1 or does not matter, their codes need no clamp.
 */
struct ordinary {
	float peak, scale;
};

INLINE bool peaks_are_ordinary(struct ordinary o, const float *absmax, size_t n)
{
	const int32_t peak = (int32_t)tsr_bits_from_f32(o.peak);
	int32_t above = 0;

	for (size_t g = 0; g < n; g++)
		above |= (int32_t)tsr_bits_from_f32(absmax[g]) > peak;
	return !above;
}

INLINE bool scales_are_ordinary(struct ordinary o, const float *scale, size_t n)
{
	int32_t below = 0;

	for (size_t g = 0; g < n; g++)
		below |= (scale[g] < o.scale) & (scale[g] > 0.0f);
	return !below;
}

#if TSR_HAS_LANES
#define BLOCK LANES_BATCH

/*
 * Linear codes where those of softsign8 are, codes of roots wherever nothing is infinite and 1 is the
 * least code of what is positive.
 */
static const struct ordinary linear_ordinary = { 0x1p119f, 0x1p-60f };
#define softsign_ordinary linear_ordinary
#define ulinear_ordinary linear_ordinary
static const struct ordinary root_ordinary = { 0x1.fffffep127f, 0x1p-66f };
#define sqrt_ordinary root_ordinary

/* Codes of 8 elements, as tsr_softsign_code_in() and so on give them; @least is 0 or 1. */
#define softsign_lanes(m, factor, least) lanes_softsign_code(m, factor)
#define linear_lanes(m, factor, least) lanes_linear_code(m, factor)
#define ulinear_lanes(v, factor, least) \
	lanes_positive_code(lanes_unsigned_code(v, factor), v, least)
#define root_lanes ulinear_lanes
INLINE lanes_i32 sqrt_lanes(lanes_f32 v, lanes_f32 factor, lanes_i32 least)
{
	const lanes_f32 root = (lanes_f32)_mm256_sqrt_ps((__m256)v);

	return lanes_positive_code(lanes_unsigned_code(root, factor), v, least);
}

/*
 * The largest magnitudes of as many groups of one or two blocks as are put together, and how many these
 * are.  The bits of magnitudes are ordered like them.
 */
INLINE size_t most_absmax(const float *x, size_t ngroups, size_t blocks, float *absmax)
{
	const size_t most = 8 / blocks;
	size_t done = 0;

	for (; done + most <= ngroups; done += most) {
		float each[8];

		lanes_absmax(x + done * blocks * BLOCK, blocks == 1 ? absmax + done : each);
		for (size_t g = 0; g < most && blocks == 2; g++) {
			const uint32_t a = tsr_bits_from_f32(each[2 * g]);
			const uint32_t b = tsr_bits_from_f32(each[2 * g + 1]);

			absmax[done + g] = tsr_f32_from_bits(a > b ? a : b);
		}
	}
	return done;
}

#define DEFINE_LANES_DECODE(id, code_type) \
	INLINE void decode_lanes_##id(const code_type *code, const float *scale, size_t ngroups, \
				      size_t blocks, float *x) \
	{ \
		for (size_t g = 0; g < ngroups * blocks; g++) { \
			const code_type *from = code + LANES_BATCH * g; \
			const lanes_f32 s = lanes_all(scale[g / blocks]); \
			float *to = x + LANES_BATCH * g; \
\
			for (int i = 0; i < LANES_BATCH; i += 8) \
				lanes_store(to + i, lanes_##id##_value( \
							    lanes_from_##code_type(from + i), s)); \
		} \
	}

#define DEFINE_LANES_ENCODE(id, code_type) \
	INLINE void encode_lanes_##id(const float *x, size_t ngroups, size_t blocks, \
				      const float *factor, int32_t positive, code_type *code) \
	{ \
		const lanes_i32 least = lanes_all_i32((uint32_t)positive); \
\
		(void)least; \
		for (size_t g = 0; g < ngroups * blocks; g++) { \
			const lanes_f32 f = lanes_all(factor[g / blocks]); \
			lanes_i32 v[4]; \
\
			for (int i = 0; i < 4; i++) \
				v[i] = id##_lanes(lanes_load(x + LANES_BATCH * g + 8 * i), f, \
						  least); \
			lanes_put_##code_type(code + LANES_BATCH * g, v); \
		} \
	}
#else
#define BLOCK 0 /* none */
#define most_absmax(x, ngroups, blocks, absmax) 0
#define DEFINE_LANES_DECODE(id, code_type) \
	INLINE void decode_lanes_##id(const code_type *code, const float *scale, size_t ngroups, \
				      size_t blocks, float *x) \
	{ \
		(void)code, (void)scale, (void)ngroups, (void)blocks, (void)x; \
	}
#define DEFINE_LANES_ENCODE(id, code_type) \
	static const struct ordinary id##_ordinary; \
	INLINE void encode_lanes_##id(const float *x, size_t ngroups, size_t blocks, \
				      const float *factor, int32_t positive, code_type *code) \
	{ \
		(void)x, (void)ngroups, (void)blocks, (void)factor, (void)positive, (void)code; \
	}
#endif

/* Blocks of a group, if lanes.h takes it; or 0. */
INLINE size_t blocks_of(size_t group)
{
	return BLOCK && (group == BLOCK || group == 2 * BLOCK) ? group / (BLOCK ? BLOCK : 1) : 0;
}

/* --- Runs of groups -------------------------------------------------------------------------- */

#define DEFINE_ENCODE(id, code_type) \
	DEFINE_LANES_ENCODE(id, code_type) \
\
	INLINE void encode_by_formula_##id(const float *restrict x, size_t ngroups, size_t group, \
					   const float *unit, const float *factor, \
					   const int32_t *least, code_type *restrict code) \
	{ \
		const struct tsr_bounds known = tsr_##id##_bounds(); \
		const struct tsr_bounds bounds = { hidden(known.lo), hidden(known.hi) }; \
\
		for (size_t g = 0; g < ngroups; g++) { \
			for (size_t i = g * group; i < (g + 1) * group; i++) { \
				const int32_t nearest = tsr_##id##_code_in(bounds, x[i] * unit[g], \
									   factor[g]); \
\
				code[i] = (code_type)tsr_##id##_positive(nearest, x[i], least[g]); \
			} \
		} \
	} \
\
	INLINE void encode_batch_##id(const float *restrict x, size_t ngroups, size_t group, \
				      code_type *restrict code, size_t first, \
				      struct scale_out out) \
	{ \
		float scale[BATCH], unit[BATCH], factor[BATCH]; \
		int32_t least[BATCH]; \
		const bool keeps_positive = out.format != TSR_SCALE_F16; \
		const size_t blocks = blocks_of(group); \
		bool ordinary = blocks > 0; \
\
		for (size_t g = ordinary ? most_absmax(x, ngroups, blocks, scale) : 0; \
		     g < ngroups; g++) \
			scale[g] = group_absmax(x + g * group, group); \
		ordinary = ordinary && peaks_are_ordinary(id##_ordinary, scale, ngroups); \
		for (size_t g = 0; g < ngroups; g++) \
			scale[g] = tsr_##id##_peak(scale[g]); \
		put_scales(out, first, ngroups, scale); \
		ordinary = ordinary && scales_are_ordinary(id##_ordinary, scale, ngroups); \
		for (size_t g = 0; g < ngroups; g++) { \
			unit[g] = tsr_##id##_unit(scale[g]); \
			factor[g] = tsr_##id##_factor(scale[g]); \
		} \
		/* In a group of zeros any other factor gives zeros. */ \
		for (size_t g = 0; g < ngroups && ordinary; g++) \
			factor[g] = factor[g] > 0.0f ? factor[g] : 1.0f; \
		if (ordinary) { \
			encode_lanes_##id(x, ngroups, blocks, factor, keeps_positive, code); \
			return; \
		} \
		for (size_t g = 0; g < ngroups; g++) \
			least[g] = keeps_positive ? tsr_##id##_least(scale[g]) : 0; \
		encode_by_formula_##id(x, ngroups, group, unit, factor, least, code); \
	} \
\
	INLINE void encode_runs_##id(const float *restrict x, size_t n, size_t group, \
				     code_type *restrict code, struct scale_out out) \
	{ \
		const size_t whole = n / group; \
\
		for (size_t g = 0; g < whole; g += BATCH) \
			encode_batch_##id(x + g * group, whole - g < BATCH ? whole - g : BATCH, \
					  group, code + g * group, g, out); \
		if (n % group) \
			encode_batch_##id(x + whole * group, 1, n % group, code + whole * group, \
					  whole, out); \
	} \
\
	static __attribute__((noinline)) void encode_rows_##id( \
		const struct tsr_coding *coding, const float *x, size_t n, code_type *code, \
		struct scale_out out) \
	{ \
		const size_t group = tsr_coding_group(coding); \
\
		for (size_t first = 0; first < n; first += coding->row) { \
			const size_t left = n - first; \
			const size_t size = left < coding->row ? left : coding->row; \
\
			encode_runs_##id(x + first, size, group, code + first, out); \
			out.plane = next_scales(coding, out.plane); \
		} \
	}

#define DEFINE_DECODE(id, code_type) \
	DEFINE_LANES_DECODE(id, code_type) \
\
	INLINE void decode_by_formula_##id(const code_type *restrict code, const float *scale, \
					   size_t n, size_t group, float *restrict x) \
	{ \
		for (size_t first = 0, g = 0; first < n; first += group, g++) { \
			const size_t end = n - first < group ? n : first + group; \
\
			for (size_t i = first; i < end; i++) \
				x[i] = tsr_##id##_value((float)(int32_t)code[i], scale[g]); \
		} \
	} \
\
	INLINE void decode_runs_##id(const code_type *restrict code, const void *scales, \
				     enum tsr_scale format, size_t n, size_t group, \
				     float *restrict x) \
	{ \
		const size_t ngroups = (n + group - 1) / group; \
		float scale[BATCH]; \
\
		for (size_t g = 0; g < ngroups; g += BATCH) { \
			const size_t first = g * group, left = n - first; \
			const size_t size = left < BATCH * group ? left : BATCH * group; \
			const size_t blocks = blocks_of(group); \
			const size_t whole = blocks ? size / group * group : 0; \
\
			get_scales(scales, format, g, (size + group - 1) / group, scale); \
			decode_lanes_##id(code + first, scale, whole / group, blocks, x + first); \
			decode_by_formula_##id(code + first + whole, scale + whole / group, \
					       size - whole, group, x + first + whole); \
		} \
	} \
\
	static __attribute__((noinline)) void decode_rows_##id( \
		const struct tsr_coding *coding, const code_type *code, const void *scales, \
		size_t n, float *x) \
	{ \
		const size_t group = tsr_coding_group(coding); \
\
		for (size_t first = 0; first < n; first += coding->row) { \
			const size_t left = n - first; \
			const size_t size = left < coding->row ? left : coding->row; \
\
			decode_runs_##id(code + first, scales, coding->scale, size, group, \
					 x + first); \
			scales = next_scales(coding, scales); \
		} \
	}

DEFINE_ENCODE(softsign, int8_t)
DEFINE_ENCODE(linear, int8_t)
DEFINE_ENCODE(sqrt, uint8_t)
DEFINE_ENCODE(ulinear, uint8_t)
DEFINE_ENCODE(root, uint8_t)
DEFINE_DECODE(softsign, int8_t)
DEFINE_DECODE(linear, int8_t)
DEFINE_DECODE(sqrt, uint8_t)
DEFINE_DECODE(ulinear, uint8_t)

/* --- Codecs ---------------------------------------------------------------------------------- */

/* Groups as usual: @usual of them, the codec's own. */
#define DEFINE_ENCODER(codec, id, usual) \
	void TSR_FOR_ISA(encode_##codec)(const struct tsr_coding *coding, const float *restrict x, \
					 size_t n, void *const plane[], \
					 struct tsr_encode_report *report) \
	{ \
		const struct scale_out out = { plane[1], coding->scale, tsr_##id##_e8m8_max(), \
					       report }; \
\
		if (coding->row) \
			encode_rows_##id(coding, x, n, plane[0], out); \
		else if (coding->group == (usual)) \
			encode_runs_##id(x, n, usual, plane[0], out); \
		else \
			encode_runs_##id(x, n, coding->group, plane[0], out); \
	}

#define DEFINE_DECODER(codec, id, usual) \
	void TSR_FOR_ISA(decode_##codec)(const struct tsr_coding *coding, \
					 const void *const plane[], size_t n, float *restrict x) \
	{ \
		const size_t whole = n / (usual) * (usual); \
\
		if (coding->row) \
			decode_rows_##id(coding, plane[0], plane[1], n, x); \
		else if (coding->group == (usual) && (whole == n || BLOCK)) \
			decode_runs_##id(plane[0], plane[1], coding->scale, BLOCK ? n : whole, \
					 usual, x); \
		else \
			decode_runs_##id(plane[0], plane[1], coding->scale, n, coding->group, x); \
	}

#define USUAL_softsign8 32
#define USUAL_ratio8 64
#define USUAL_linear8 32
#define USUAL_sqrt8 32
#define USUAL_ulinear8 32
#define X(codec, each, loops, id, ...) \
	DEFINE_ENCODER(codec, id, USUAL_##codec) DEFINE_DECODER(codec, id, USUAL_##codec)
TSR_GROUPED_LIST(X)
DEFINE_ENCODER(sqrt8_roots, root, 32)
