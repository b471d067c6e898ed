/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast path of codes that are tables (codec/table_math.h) with AVX2: of groups whose divisor is an
 * ordinary number, 32 elements at a time.  A vector is looked up entry by entry where an instruction that
 * gathers takes longer than that.
 */
#ifndef TSR_CODEC_LANES_TABLES_H
#define TSR_CODEC_LANES_TABLES_H

#include <string.h>

#include "codec/simd/lanes.h"
#include "codec/table_math.h"

/* A divisor that is no zero, infinity or NaN. */
static inline bool table_scale_is_ordinary(float scale)
{
	return scale > 0.0f && tsr_bits_from_f32(scale) < TSR_F32_INF;
}

/*
 * Elements whose places in a table are computed before they are looked up.  In one loop both took twice as
 * long: places go through memory, and what is to come waits for it.
 */
#define LANES_CHUNK 128

struct lanes_places {
	uint32_t at[LANES_CHUNK],
		rest[LANES_CHUNK]; /* the number of an entry, and what is added to it */
};

#if TSR_HAS_LANES

/* The compiler keeps what comes before apart from what comes after. */
#define LANES_NEXT_PASS() __asm__ __volatile__("" ::: "memory")

/* Entries of a table at 8 places. */
LANES lanes_i32 lanes_lookup(const uint32_t *table, const uint32_t *at)
{
	const int *entry = (const int *)table;
#ifdef __AVX512F__
	return (lanes_i32)_mm256_i32gather_epi32(
		entry, _mm256_loadu_si256((const __m256i *)(const void *)at), 4);
#else
	uint64_t two[4];

	memcpy(two, at, sizeof(two));
	return (lanes_i32)_mm256_setr_epi32(entry[(uint32_t)two[0]], entry[two[0] >> 32],
					    entry[(uint32_t)two[1]], entry[two[1] >> 32],
					    entry[(uint32_t)two[2]], entry[two[2] >> 32],
					    entry[(uint32_t)two[3]], entry[two[3] >> 32]);
#endif
}

/* Of 8 bytes the entries of a table of 256. */
LANES lanes_f32 lanes_lookup_bytes(const float *table, const uint8_t *byte)
{
#ifdef __AVX512F__
	const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)byte);

	return (lanes_f32)_mm256_i32gather_ps(table, _mm256_cvtepu8_epi32(bytes), 4);
#else
	uint64_t b;

	memcpy(&b, byte, sizeof(b));
	return (lanes_f32)_mm256_setr_ps(table[b & 0xff], table[b >> 8 & 0xff],
					 table[b >> 16 & 0xff], table[b >> 24 & 0xff],
					 table[b >> 32 & 0xff], table[b >> 40 & 0xff],
					 table[b >> 48 & 0xff], table[b >> 56]);
#endif
}

/* What the lookups of a group share; its unit is 1. */
struct lanes_row {
	lanes_f32 divisor, lowest, highest;
	const uint32_t *entry;
	lanes_i32 from, mask; /* `from` is added to the number of a bucket */
	__m128i shift;
};

LANES struct lanes_row lanes_row_of(const struct tsr_table_row *row, const uint32_t *entry,
				    float divisor)
{
	const struct lanes_row ret = {
		.divisor = lanes_all(divisor),
		.lowest = lanes_all(row->lowest),
		.highest = lanes_all(row->highest),
		.entry = entry,
		.from = lanes_all_i32(row->first - row->bucket),
		.mask = lanes_all_i32((1u << row->shift) - 1),
		.shift = _mm_cvtsi32_si128((int)row->shift),
	};

	return ret;
}

/*
 * tsr_table_key() of 8 elements, and where tsr_table_code() looks.  The first operand of an instruction is
 * the one that may be NaN.
 */
LANES void lanes_table_place(const struct lanes_row *r, bool signs, lanes_f32 x,
			     struct lanes_places *p, size_t i)
{
	const __m256 t = _mm256_min_ps(
		_mm256_max_ps((__m256)(lanes_abs(x) / r->divisor), (__m256)r->lowest),
		(__m256)r->highest);
	const lanes_u32 sign = (lanes_u32)x >> 31;
	const lanes_u32 key = signs ? ((lanes_u32)t << 1) | sign : (lanes_u32)t << 1;
	const lanes_i32 bucket = (lanes_i32)_mm256_srl_epi32((__m256i)key, r->shift);

	_mm256_storeu_si256((__m256i *)(void *)(p->at + i), (__m256i)(bucket + r->from));
	_mm256_storeu_si256((__m256i *)(void *)(p->rest + i), (__m256i)((lanes_i32)key & r->mask));
}

/* tsr_table_code(), from there. */
LANES lanes_i32 lanes_table_code(const uint32_t *entry, const struct lanes_places *p, size_t i)
{
	const lanes_i32 found = lanes_lookup(entry, p->at + i);
	const lanes_i32 rest = (lanes_i32)_mm256_loadu_si256(
		(const __m256i *)(const void *)(p->rest + i));

	return (lanes_i32)((lanes_u32)(found + rest) >> 24);
}

/* 32 values from 0 to 255 as bytes, in the order of packing. */
LANES __m256i lanes_mixed_u8(const lanes_i32 v[4])
{
	return _mm256_packus_epi16(_mm256_packs_epi32((__m256i)v[0], (__m256i)v[1]),
				   _mm256_packs_epi32((__m256i)v[2], (__m256i)v[3]));
}

/* 32 values as the nearest signed bytes: a value other than 0 stays one, of the same sign. */
LANES __m256i lanes_mixed_i8(const lanes_i32 v[4])
{
	return _mm256_packs_epi16(_mm256_packs_epi32((__m256i)v[0], (__m256i)v[1]),
				  _mm256_packs_epi32((__m256i)v[2], (__m256i)v[3]));
}

/* tsr_table_byte(); @least is 0 or 1. */
LANES __m256i lanes_table_bytes(enum tsr_table_layout layout, __m256i code, const lanes_i32 x[4],
				__m256i least)
{
	const lanes_i32 mag[4] = { (lanes_i32)lanes_abs((lanes_f32)x[0]),
				   (lanes_i32)lanes_abs((lanes_f32)x[1]),
				   (lanes_i32)lanes_abs((lanes_f32)x[2]),
				   (lanes_i32)lanes_abs((lanes_f32)x[3]) };
	const __m256i floor = _mm256_min_epu8(lanes_mixed_i8(mag), least);
	const __m256i kept = _mm256_max_epu8(code, floor);
	const __m256i bits = lanes_mixed_i8(x), middle = _mm256_set1_epi8(127);
	const __m256i sign = _mm256_cmpgt_epi8(_mm256_setzero_si256(), bits);

	if (layout == TSR_TABLE_SIGNED)
		return _mm256_or_si256(kept, _mm256_and_si256(bits, _mm256_set1_epi8(INT8_MIN)));
	if (layout == TSR_TABLE_UNSIGNED)
		return _mm256_andnot_si256(sign, kept);
	return _mm256_blendv_epi8(_mm256_add_epi8(middle, kept), _mm256_subs_epu8(middle, kept),
				  sign);
}

/* Whole batches, at most LANES_CHUNK elements of such a group. */
LANES void lanes_encode_chunk(struct tsr_table_rule rule, const struct lanes_row *r, uint32_t least,
			      const float *x, size_t n, uint8_t *code)
{
	const __m256i floor = _mm256_set1_epi8((char)least);
	struct lanes_places p;

	for (size_t i = 0; i < n; i += 8)
		lanes_table_place(r, rule.set == TSR_TABLES_DYNAMIC, lanes_load(x + i), &p, i);
	LANES_NEXT_PASS();
	for (size_t i = 0; i < n; i += LANES_BATCH) {
		lanes_i32 v[4], c[4];
		__m256i bytes;

		for (size_t j = 0; j < 4; j++) {
			v[j] = (lanes_i32)lanes_load(x + i + 8 * j);
			c[j] = lanes_table_code(r->entry, &p, i + 8 * j);
		}
		bytes = lanes_table_bytes(rule.layout, lanes_mixed_u8(c), v, floor);
		_mm256_storeu_si256((__m256i *)(void *)(code + i), lanes_in_order(bytes));
	}
}

/* tsr_table_expand() without a chain of loads: bounds that are not below the ratio are counted. */
LANES uint32_t lanes_table_expand(const float *bound, float absmax, float least)
{
	const __m256 ratio = _mm256_set1_ps(absmax / least);
	lanes_i32 count = { 0 };

	for (uint32_t i = 0; i < TSR_TABLE_ROWS; i += 8)
		count -= (lanes_i32)_mm256_cmp_ps(_mm256_loadu_ps(bound + i), ratio, _CMP_GE_OQ);
	count += (lanes_i32)_mm256_permute2x128_si256((__m256i)count, (__m256i)count, 1);
	{
		const uint32_t all = (uint32_t)(count[0] + count[1] + count[2] + count[3]);
		const uint32_t row = all > 1 ? all - 1 : 1; /* that of row 0 is infinite */

		return absmax > 0.0f ? row : absmax != absmax;
	}
}

/* The whole batches of @n elements of such a group; returns their elements. */
LANES size_t lanes_encode_table(struct tsr_table_rule rule, const struct lanes_row *r,
				uint32_t least, const float *x, size_t n, uint8_t *code)
{
	size_t done = 0;

	for (; done + LANES_CHUNK <= n; done += LANES_CHUNK)
		lanes_encode_chunk(rule, r, least, x + done, LANES_CHUNK, code + done);
	for (; done + LANES_BATCH <= n; done += LANES_BATCH)
		lanes_encode_chunk(rule, r, least, x + done, LANES_BATCH, code + done);
	return done;
}

/* The same for codes to values, which need no places. */
LANES size_t lanes_decode_table(struct tsr_table_rule rule, const struct tsr_table_row *row,
				float scale, const uint8_t *code, size_t n, float *x)
{
	const lanes_f32 s = lanes_all(scale);
	size_t done = 0;

	for (; done + LANES_BATCH <= n; done += LANES_BATCH) {
		uint8_t entry[LANES_BATCH];
		const uint8_t *at = code + done;

		if (rule.layout == TSR_TABLE_CENTRED) {
			for (int i = 0; i < LANES_BATCH; i++)
				entry[i] = (uint8_t)tsr_table_entry(rule.layout, at[i]);
			at = entry;
		}
		for (int i = 0; i < LANES_BATCH; i += 8)
			lanes_store(x + done + i, lanes_lookup_bytes(row->value, at + i) * s);
	}
	return done;
}

/* tsr_log_range() without a loop; @reach has a place for every range. */
LANES uint32_t lanes_log_range(const float *reach, float scale, float least)
{
	const __m256 s = _mm256_set1_ps(scale), l = _mm256_set1_ps(least);
	const __m256 low = _mm256_mul_ps(s, _mm256_loadu_ps(reach));
	const __m256 high = _mm256_mul_ps(s, _mm256_loadu_ps(reach + 8));
	const int beyond_low = _mm256_movemask_ps(_mm256_cmp_ps(low, l, _CMP_NLE_UQ));
	const int beyond_high = _mm256_movemask_ps(_mm256_cmp_ps(high, l, _CMP_NLE_UQ));
	const unsigned beyond = (unsigned)beyond_low | ((unsigned)beyond_high & 0x7f) << 8;

	return scale > 0.0f ? (uint32_t)__builtin_popcount(beyond) : 0;
}

/* Places of a group, or of a part, from @i on: variances or, with @roots, their roots. */
LANES void lanes_log_places(const struct lanes_row *r, const float *x, size_t n, bool roots,
			    struct lanes_places *p, size_t i)
{
	for (size_t k = 0; k < n; k += 8) {
		const lanes_f32 v = lanes_load(x + k);
		const lanes_f32 root = roots ? v : (lanes_f32)_mm256_sqrt_ps((__m256)v);

		lanes_table_place(r, false, root, p, i + k);
	}
}

/* tsr_log_code() of whole batches whose places are there.  A root is positive where the variance is. */
LANES void lanes_log_codes(const uint32_t *entry, const struct lanes_places *p, const float *x,
			   size_t n, uint8_t *code)
{
	const __m256i one = _mm256_set1_epi8(1);

	LANES_NEXT_PASS();
	for (size_t i = 0; i < n; i += LANES_BATCH) {
		lanes_i32 positive[4], c[4];
		__m256i bytes;

		for (size_t j = 0; j < 4; j++) {
			positive[j] = lanes_load(x + i + 8 * j) > lanes_all(0.0f);
			c[j] = lanes_table_code(entry, p, i + 8 * j);
		}
		bytes = _mm256_max_epu8(lanes_mixed_u8(c), one);
		bytes = _mm256_and_si256(bytes, lanes_mixed_i8(positive));
		_mm256_storeu_si256((__m256i *)(void *)(code + i), lanes_in_order(bytes));
	}
}

/* tsr_log_variance() */
LANES size_t lanes_decode_log(const float *value, float scale, const uint8_t *code, size_t n,
			      float *x)
{
	const lanes_f32 s = lanes_all(scale);
	size_t done = 0;

	for (; done + LANES_BATCH <= n; done += LANES_BATCH) {
		for (int i = 0; i < LANES_BATCH; i += 8) {
			const lanes_f32 root = lanes_lookup_bytes(value, code + done + i) * s;

			lanes_store(x + done + i, root * root);
		}
	}
	return done;
}

#else

struct lanes_row {
	int none;
};

static inline struct lanes_row lanes_row_of(const struct tsr_table_row *row, const uint32_t *entry,
					    float divisor)
{
	return (void)row, (void)entry, (void)divisor, (struct lanes_row){ 0 };
}

#define lanes_table_expand tsr_table_expand
#define lanes_log_range tsr_log_range
#define lanes_encode_table(rule, r, least, x, n, code) ((void)(r), (size_t)0)
#define lanes_decode_table(rule, row, scale, code, n, x) ((size_t)0)
#define lanes_log_places(r, x, n, roots, p, i) ((void)(r), (void)(x), (void)(roots))
#define lanes_log_codes(entry, p, x, n, code) ((void)(p), (void)(code))
#define lanes_decode_log(value, scale, code, n, x) ((size_t)0)

#endif

#endif
