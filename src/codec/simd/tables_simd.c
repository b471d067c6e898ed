/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs whose codes are tables: the 8-bit floats of COAT, plain and expanded, and dyn8.  Formulas run in
 * SIMD lanes, lookups one by one: both rows and buckets of a group stay in the nearest cache.
 */
#include <string.h>

#include "codec/loops.h"
#include "codec/simd/absmax.h"
#include "codec/tables.h"

#define INLINE static inline __attribute__((always_inline))

/* Elements whose keys are computed before their codes are looked up. */
#define CHUNK 128

INLINE void encode_group(struct tsr_table_rule rule, const struct tsr_table_row *row,
			 const uint32_t *entry, float scale, const float *restrict x, size_t n,
			 uint8_t *restrict code)
{
	const uint32_t least = rule.keeps ? tsr_table_least(row, scale) : 0;
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

INLINE void encode_tabled(struct tsr_table_rule rule, const struct tsr_coding *coding,
			  const float *restrict x, size_t n, void *const plane[])
{
	const struct tsr_tables *tables = tsr_tables_get(rule.set);
	uint8_t *code = plane[0], *expand = rule.expanded ? plane[2] : NULL;
	float *scales = plane[1];

	for (size_t first = 0, g = 0; first < n; first += coding->group, g++) {
		const size_t end = n - first < coding->group ? n : first + coding->group;
		const float absmax = group_absmax(x + first, end - first);
		const float scale = tsr_table_scale(rule, absmax);
		uint32_t row = rule.row;

		memcpy(scales + g, &scale, sizeof(scale));
		if (rule.expanded) {
			row = tsr_table_expand(tables->bound, absmax,
					       group_least(x + first, end - first));
			expand[g] = (uint8_t)row;
		}
		for (size_t i = first; i < end; i += CHUNK)
			encode_group(rule, &tables->row[row], tables->entry, scale, x + i,
				     end - i < CHUNK ? end - i : CHUNK, code + i);
	}
}

INLINE void decode_group(struct tsr_table_rule rule, const struct tsr_table_row *row, float scale,
			 const uint8_t *restrict code, size_t n, float *restrict x)
{
	float value[CHUNK];

	for (size_t i = 0; i < n; i++)
		value[i] = row->value[tsr_table_index(rule.layout, code[i])];
	for (size_t i = 0; i < n; i++)
		x[i] = tsr_table_value(value[i], tsr_table_sign(rule.layout, code[i]), scale);
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
		for (size_t i = first; i < end; i += CHUNK)
			decode_group(rule, row, scale, code + i, end - i < CHUNK ? end - i : CHUNK,
				     x + i);
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
