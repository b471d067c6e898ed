/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs whose codes are tables: the 8-bit floats of COAT, plain and expanded, and dyn8.  What
 * lanes_tables.h does not take is looked up one by one: rows and buckets of a group stay in the nearest
 * cache.
 */
#include <string.h>

#include "codec/loops.h"
#include "codec/simd/absmax.h"
#include "codec/simd/lanes_tables.h"
#include "codec/tables.h"

#define INLINE static inline __attribute__((always_inline))

/* Elements whose keys are computed before their codes are looked up. */
#define CHUNK 128

INLINE void encode_chunk(struct tsr_table_rule rule, const struct tsr_table_row *row,
			 const uint32_t *entry, float scale, uint32_t least,
			 const float *restrict x, size_t n, uint8_t *restrict code)
{
	const float divisor = tsr_table_divisor(scale), unit = row->unit;
	const float lowest = row->lowest, highest = row->highest;
	const uint32_t bucket = row->bucket, shift = row->shift;
	uint32_t key[CHUNK];

	for (size_t i = 0; i < n; i++)
		key[i] = tsr_table_key(x[i], divisor, unit, lowest, highest);
	for (size_t i = 0; i < n; i++)
		key[i] = tsr_table_code(entry + row->first, bucket, shift, key[i]);
	for (size_t i = 0; i < n; i++)
		code[i] = (uint8_t)tsr_table_byte(rule.layout, key[i], x[i], least);
}

INLINE void encode_group(struct tsr_table_rule rule, const struct tsr_table_row *row,
			 const uint32_t *entry, float scale, const float *restrict x, size_t n,
			 uint8_t *restrict code)
{
	const uint32_t least = rule.keeps ? tsr_table_least(row, scale) : 0;
	size_t done = 0;

	if (table_scale_is_ordinary(scale) && row->unit == 1.0f && least <= 1) {
		const struct lanes_row r = lanes_row_of(row, entry, scale);

		done = lanes_encode_table(rule, &r, least, x, n, code);
	}
	for (; done < n; done += CHUNK)
		encode_chunk(rule, row, entry, scale, least, x + done,
			     n - done < CHUNK ? n - done : CHUNK, code + done);
}

/* Groups whose scales are computed before their codes: one after the other they would wait for them. */
#define BATCH 16

/* The scale and the row of a group, the latter also in @expand where it is stored. */
INLINE uint32_t measure_group(struct tsr_table_rule rule, const struct tsr_tables *tables,
			      const float *x, size_t n, float *scale, uint8_t *expand)
{
	struct group_reach reach;
	uint32_t row;

	if (!rule.expanded) {
		*scale = tsr_table_scale(rule, group_absmax(x, n));
		return rule.row;
	}
	reach = group_reach(x, n);
	*scale = tsr_table_scale(rule, reach.absmax);
	row = lanes_table_expand(tables->bound, reach.absmax, reach.least);
	*expand = (uint8_t)row;
	return row;
}

/* At most BATCH groups. */
INLINE void encode_batch(struct tsr_table_rule rule, const struct tsr_tables *tables, size_t group,
			 const float *restrict x, size_t n, uint8_t *restrict code, float *scales,
			 uint8_t *expand)
{
	float scale[BATCH];
	uint32_t row[BATCH];

	for (size_t first = 0, g = 0; first < n; first += group, g++)
		row[g] = measure_group(rule, tables, x + first,
				       n - first < group ? n - first : group, &scale[g],
				       expand ? expand + g : NULL);
	for (size_t first = 0, g = 0; first < n; first += group, g++) {
		memcpy(scales + g, &scale[g], sizeof(scale[g]));
		encode_group(rule, &tables->row[row[g]], tables->entry, scale[g], x + first,
			     n - first < group ? n - first : group, code + first);
	}
}

INLINE void encode_tabled(struct tsr_table_rule rule, const struct tsr_coding *coding,
			  const float *restrict x, size_t n, void *const plane[])
{
	const struct tsr_tables *tables = tsr_tables_get(rule.set);
	const size_t group = coding->group, most = BATCH * group;
	uint8_t *code = plane[0], *expand = rule.expanded ? plane[2] : NULL;
	float *scales = plane[1];

	for (size_t first = 0, g = 0; first < n; first += most, g += BATCH)
		encode_batch(rule, tables, group, x + first, n - first < most ? n - first : most,
			     code + first, scales + g, expand ? expand + g : NULL);
}

INLINE void decode_chunk(struct tsr_table_rule rule, const struct tsr_table_row *row, float scale,
			 const uint8_t *restrict code, size_t n, float *restrict x)
{
	float value[CHUNK];

	for (size_t i = 0; i < n; i++)
		value[i] = row->value[tsr_table_index(rule.layout, code[i])];
	for (size_t i = 0; i < n; i++)
		x[i] = tsr_table_value(value[i], tsr_table_sign(rule.layout, code[i]), scale);
}

INLINE void decode_group(struct tsr_table_rule rule, const struct tsr_table_row *row, float scale,
			 const uint8_t *restrict code, size_t n, float *restrict x)
{
	size_t done = 0;

	if (table_scale_is_ordinary(scale))
		done = lanes_decode_table(rule, row, scale, code, n, x);
	for (; done < n; done += CHUNK)
		decode_chunk(rule, row, scale, code + done, n - done < CHUNK ? n - done : CHUNK,
			     x + done);
}

INLINE void decode_tabled(struct tsr_table_rule rule, const struct tsr_coding *coding,
			  const void *const plane[], size_t n, float *restrict x)
{
	const struct tsr_tables *tables = tsr_tables_get(rule.set);
	const uint8_t *code = plane[0], *expand = rule.expanded ? plane[2] : NULL;
	const float *scales = plane[1];

	for (size_t first = 0, g = 0; first < n; first += coding->group, g++) {
		const size_t end = n - first < coding->group ? n : first + coding->group;
		const struct tsr_table_row *row = &tables->row[expand ? expand[g] : rule.row];
		float scale;

		memcpy(&scale, scales + g, sizeof(scale));
		decode_group(rule, row, scale, code + first, end - first, x + first);
	}
}

#define X(id, each, loops, format, code_type, ...) \
	void TSR_FOR_ISA(encode_##id)(const struct tsr_coding *coding, const float *restrict x, \
				      size_t n, void *const plane[], \
				      struct tsr_encode_report *report) \
	{ \
		(void)report; \
		if (coding->kind == TSR_KIND_VARIANCE) \
			encode_tabled(tsr_##format##_rule(true), coding, x, n, plane); \
		else \
			encode_tabled(tsr_##format##_rule(false), coding, x, n, plane); \
	} \
\
	void TSR_FOR_ISA(decode_##id)(const struct tsr_coding *coding, const void *const plane[], \
				      size_t n, float *restrict x) \
	{ \
		if (coding->kind == TSR_KIND_VARIANCE) \
			decode_tabled(tsr_##format##_rule(true), coding, plane, n, x); \
		else \
			decode_tabled(tsr_##format##_rule(false), coding, plane, n, x); \
	}
TSR_TABLED_LIST(X)
