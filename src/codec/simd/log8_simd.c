/* SPDX-License-Identifier: Apache-2.0 */
/* log8: variances whose roots are coded by their logarithm, with a scale and a range per group. */
#include <string.h>

#include "codec/log8_math.h"
#include "codec/loops.h"
#include "codec/simd/absmax.h"
#include "codec/tables.h"

#define INLINE static inline __attribute__((always_inline))

/* Elements whose keys are computed before their codes are looked up. */
#define CHUNK 64

/* The root of an element, or of bits; with @roots it is one already. */
INLINE float root_of(float x, bool roots)
{
	return roots ? x : tsr_sqrt(x);
}

/* RN(sqrt) is monotonic: the largest and the least root are those of the largest and the least. */
INLINE uint32_t scale_of(const float *reach, const float *x, size_t n, bool roots)
{
	const float largest = root_of(group_absmax(x, n), roots);
	const float least = root_of(group_least(x, n), roots);
	const uint32_t stored = tsr_f28_from_root(largest);

	return stored | tsr_log_range(reach, tsr_f28_scale(stored), least);
}

/* At most CHUNK elements of a group. */
INLINE void encode_some(const struct tsr_table_row *row, const uint32_t *entry, float divisor,
			const float *restrict x, size_t n, bool roots, uint8_t *restrict code)
{
	const float unit = row->unit, lowest = row->lowest, highest = row->highest;
	const uint32_t bucket = row->bucket, shift = row->shift;
	float root[CHUNK];
	uint32_t found[CHUNK];

	for (size_t i = 0; i < n; i++) {
		root[i] = root_of(x[i], roots);
		found[i] = tsr_table_key(root[i], divisor, unit, lowest, highest);
	}
	for (size_t i = 0; i < n; i++)
		found[i] = tsr_table_code(entry, bucket, shift, found[i]);
	for (size_t i = 0; i < n; i++) {
		const uint32_t some = found[i] ? found[i] : 1;

		code[i] = (uint8_t)(root[i] > 0.0f ? some : 0);
	}
}

/* Consecutive groups; returns how many. */
INLINE size_t encode_run(const struct tsr_tables *tables, const float *x, size_t n, size_t group,
			 bool roots, uint8_t *code, uint32_t *scales)
{
	size_t g = 0;

	for (size_t first = 0; first < n; first += group, g++) {
		const size_t end = n - first < group ? n : first + group;
		const uint32_t stored = scale_of(tables->bound, x + first, end - first, roots);
		const struct tsr_table_row *row = &tables->row[tsr_f28_range(stored)];
		const float divisor = tsr_table_divisor(tsr_f28_scale(stored));

		memcpy(scales + g, &stored, sizeof(stored));
		for (size_t i = first; i < end; i += CHUNK)
			encode_some(row, tables->entry + row->first, divisor, x + i,
				    end - i < CHUNK ? end - i : CHUNK, roots, code + i);
	}
	return g;
}

INLINE void encode_all(const struct tsr_coding *coding, const float *x, size_t n,
		       void *const plane[], bool roots)
{
	const struct tsr_tables *tables = tsr_tables_get(TSR_TABLES_LOG);
	const size_t group = tsr_coding_group(coding), run = coding->row ? coding->row : n;
	uint8_t *code = plane[0];
	uint32_t *scales = plane[1];

	for (size_t first = 0; first < n; first += run) {
		const size_t size = n - first < run ? n - first : run;

		scales += encode_run(tables, x + first, size, group, roots, code + first, scales);
	}
}

void TSR_FOR_ISA(encode_log8)(const struct tsr_coding *coding, const float *restrict x, size_t n,
			      void *const plane[], struct tsr_encode_report *report)
{
	(void)report;
	encode_all(coding, x, n, plane, false);
}

void TSR_FOR_ISA(encode_log8_roots)(const struct tsr_coding *coding, const float *restrict x,
				    size_t n, void *const plane[], struct tsr_encode_report *report)
{
	(void)report;
	encode_all(coding, x, n, plane, true);
}

INLINE size_t decode_run(const struct tsr_tables *tables, const uint8_t *restrict code,
			 const uint32_t *scales, size_t n, size_t group, float *restrict x)
{
	size_t g = 0;

	for (size_t first = 0; first < n; first += group, g++) {
		const size_t end = n - first < group ? n : first + group;
		const float *value, scale = tsr_f28_scale(scales[g]);

		value = tables->row[tsr_f28_range(scales[g])].value;
		for (size_t i = first; i < end; i++)
			x[i] = tsr_log_variance(value[code[i]], scale);
	}
	return g;
}

void TSR_FOR_ISA(decode_log8)(const struct tsr_coding *coding, const void *const plane[], size_t n,
			      float *restrict x)
{
	const struct tsr_tables *tables = tsr_tables_get(TSR_TABLES_LOG);
	const size_t group = tsr_coding_group(coding), run = coding->row ? coding->row : n;
	const uint8_t *code = plane[0];
	const uint32_t *scales = plane[1];

	for (size_t first = 0; first < n; first += run) {
		const size_t size = n - first < run ? n - first : run;

		scales += decode_run(tables, code + first, scales, size, group, x + first);
	}
}
