/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log<k>: variances whose roots are coded by their logarithm, with a scale and a range per group.  Codes of
 * log8 are bytes; those of the others are packed from bytes.
 */
#include <string.h>

#include "codec/logs_math.h"
#include "codec/loops.h"
#include "codec/simd/absmax.h"
#include "codec/simd/bit_packing.h"
#include "codec/simd/lanes_tables.h"
#include "codec/tables.h"

#define INLINE static inline __attribute__((always_inline))

/* Elements whose keys are computed before their codes are looked up. */
#define CHUNK 64

/* Groups whose scales are computed before their codes: one after the other they would wait for them. */
#define BATCH 16

/* The root of an element, or of bits; with @roots it is one already. */
INLINE float root_of(float x, bool roots)
{
	return roots ? x : tsr_sqrt(x);
}

/* RN(sqrt) is monotonic: the largest and the least root are those of the largest and the least. */
INLINE uint32_t scale_of(const float *bound, const float *x, size_t n, bool roots)
{
	const struct group_reach reach = group_reach(x, n);
	const float largest = root_of(reach.absmax, roots), least = root_of(reach.least, roots);
	const uint32_t stored = tsr_f28_from_root(largest);

	return stored | lanes_log_range(bound, tsr_f28_scale(stored), least);
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

INLINE void encode_group(const struct tsr_tables *tables, uint32_t stored, const float *x, size_t n,
			 bool roots, uint8_t *code)
{
	const struct tsr_table_row *row = &tables->row[tsr_f28_range(stored)];
	const float divisor = tsr_table_divisor(tsr_f28_scale(stored));

	for (size_t i = 0; i < n; i += CHUNK)
		encode_some(row, tables->entry + row->first, divisor, x + i,
			    n - i < CHUNK ? n - i : CHUNK, roots, code + i);
}

/* Whether lanes_tables.h takes @n groups of so many elements, which fill a chunk. */
INLINE bool fills_chunk(const uint32_t *stored, size_t n, size_t group)
{
	bool ret = TSR_HAS_LANES && n * group == LANES_CHUNK && group % 8 == 0;

	for (size_t g = 0; g < n && ret; g++)
		ret = table_scale_is_ordinary(tsr_f28_scale(stored[g]));
	return ret;
}

/* Groups that fill a chunk. */
INLINE void encode_chunk(const struct tsr_tables *tables, const uint32_t *stored, size_t group,
			 const float *x, bool roots, uint8_t *code)
{
	struct lanes_places p;

	for (size_t i = 0; i < LANES_CHUNK; i += group, stored++) {
		const struct tsr_table_row *row = &tables->row[tsr_f28_range(*stored)];
		const struct lanes_row r = lanes_row_of(row, tables->entry, tsr_f28_scale(*stored));

		lanes_log_places(&r, x + i, group, roots, &p, i);
	}
	lanes_log_codes(tables->entry, &p, x, LANES_CHUNK, code);
}

/* At most BATCH groups. */
INLINE void encode_batch(const struct tsr_tables *tables, const float *x, size_t n, size_t group,
			 bool roots, uint8_t *code, uint32_t *scales)
{
	const size_t ngroups = (n + group - 1) / group, together = LANES_CHUNK / group;
	uint32_t stored[BATCH];

	for (size_t g = 0, i = 0; g < ngroups; g++, i += group)
		stored[g] = scale_of(tables->bound, x + i, n - i < group ? n - i : group, roots);
	memcpy(scales, stored, ngroups * sizeof(*stored));
	for (size_t g = 0, i = 0; g < ngroups;) {
		if (n - i >= LANES_CHUNK && fills_chunk(stored + g, together, group)) {
			encode_chunk(tables, stored + g, group, x + i, roots, code + i);
			g += together, i += LANES_CHUNK;
		} else {
			encode_group(tables, stored[g], x + i, n - i < group ? n - i : group, roots,
				     code + i);
			g++, i += group;
		}
	}
}

/* Consecutive groups; returns how many. */
INLINE size_t encode_run(const struct tsr_tables *tables, const float *x, size_t n, size_t group,
			 bool roots, uint8_t *code, uint32_t *scales)
{
	const size_t most = BATCH * group;

	for (size_t first = 0, g = 0; first < n; first += most, g += BATCH)
		encode_batch(tables, x + first, n - first < most ? n - first : most, group, roots,
			     code + first, scales + g);
	return (n + group - 1) / group;
}

INLINE void encode_all(const struct tsr_coding *coding, const float *x, size_t n,
		       void *const plane[], bool roots)
{
	const struct tsr_tables *tables = tsr_tables_get(TSR_TABLES_LOG8);
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

INLINE void decode_group(const float *value, float scale, const uint8_t *restrict code, size_t n,
			 float *restrict x)
{
	size_t i = 0;

	if (table_scale_is_ordinary(scale))
		i = lanes_decode_log(value, scale, code, n, x);
	for (; i < n; i++)
		x[i] = tsr_log_variance(value[code[i]], scale);
}

/* Consecutive groups; returns how many. */
INLINE size_t decode_run(const struct tsr_tables *tables, const uint8_t *restrict code,
			 const uint32_t *scales, size_t n, size_t group, float *restrict x)
{
	size_t g = 0;

	for (size_t first = 0; first < n; first += group, g++) {
		uint32_t stored;

		memcpy(&stored, scales + g, sizeof(stored));
		decode_group(tables->row[tsr_f28_range(stored)].value, tsr_f28_scale(stored),
			     code + first, n - first < group ? n - first : group, x + first);
	}
	return g;
}

void TSR_FOR_ISA(decode_log8)(const struct tsr_coding *coding, const void *const plane[], size_t n,
			      float *restrict x)
{
	const struct tsr_tables *tables = tsr_tables_get(TSR_TABLES_LOG8);
	const size_t group = tsr_coding_group(coding), run = coding->row ? coding->row : n;
	const uint8_t *code = plane[0];
	const uint32_t *scales = plane[1];

	for (size_t first = 0; first < n; first += run) {
		const size_t size = n - first < run ? n - first : run;

		scales += decode_run(tables, code + first, scales, size, group, x + first);
	}
}

/* --- Packed codes -------------------------------------------------------------------------------- */

/* At most PACKING_BATCH elements of a group: codes as values to pack, and zeros to the end of a share. */
INLINE void encode_values(const struct tsr_tables *tables, uint32_t stored, const float *x,
			  size_t n, uint32_t *restrict value)
{
	const size_t whole = fills_chunk(&stored, 1, LANES_CHUNK) ? n / LANES_CHUNK * LANES_CHUNK
								  : 0;
	uint8_t code[PACKING_BATCH];

	for (size_t i = 0; i < whole; i += LANES_CHUNK)
		encode_chunk(tables, &stored, LANES_CHUNK, x + i, false, code + i);
	encode_group(tables, stored, x + whole, n - whole, false, code + whole);
	for (size_t i = 0; i < n; i++)
		value[i] = code[i];
	for (size_t i = n; i % SHARE; i++)
		value[i] = 0;
}

INLINE void encode_packed(const struct tsr_coding *coding, const struct tsr_tables *tables,
			  const unsigned bits, const float *x, size_t n, void *const plane[])
{
	unsigned char *word = plane[0], *scale = plane[1];

	for (size_t first = 0; first < n; first += coding->group, scale += sizeof(uint32_t)) {
		const size_t end = n - first < coding->group ? n : first + coding->group;
		const uint32_t stored = scale_of(tables->bound, x + first, end - first, false);

		memcpy(scale, &stored, sizeof(stored));
		for (size_t i = first; i < end; i += PACKING_BATCH) {
			const size_t some = end - i < PACKING_BATCH ? end - i : PACKING_BATCH;
			union packing batch;

			encode_values(tables, stored, x + i, some, batch.value);
			pack_batch(&batch, (some + SHARE - 1) / SHARE, word + i / 8 * bits, bits);
		}
	}
}

INLINE void decode_packed(const struct tsr_coding *coding, const struct tsr_tables *tables,
			  const unsigned bits, const void *const plane[], size_t n, float *x)
{
	const unsigned char *word = plane[0], *scale = plane[1];

	for (size_t first = 0; first < n; first += coding->group, scale += sizeof(uint32_t)) {
		const size_t end = n - first < coding->group ? n : first + coding->group;
		uint32_t stored;

		memcpy(&stored, scale, sizeof(stored));
		for (size_t i = first; i < end; i += PACKING_BATCH) {
			const size_t some = end - i < PACKING_BATCH ? end - i : PACKING_BATCH;
			uint8_t code[PACKING_BATCH];
			union packing batch;

			unpack_batch(&batch, (some + SHARE - 1) / SHARE, word + i / 8 * bits, bits);
			for (size_t k = 0; k < some; k++)
				code[k] = (uint8_t)batch.value[k];
			decode_group(tables->row[tsr_f28_range(stored)].value,
				     tsr_f28_scale(stored), code, some, x + i);
		}
	}
}

#define X(id, each, loops, set, bits, ...) \
	void TSR_FOR_ISA(encode_##id)(const struct tsr_coding *coding, const float *restrict x, \
				      size_t n, void *const plane[], \
				      struct tsr_encode_report *report) \
	{ \
		(void)report; \
		encode_packed(coding, tsr_tables_get(TSR_TABLES_##set), bits, x, n, plane); \
	} \
\
	void TSR_FOR_ISA(decode_##id)(const struct tsr_coding *coding, const void *const plane[], \
				      size_t n, float *restrict x) \
	{ \
		decode_packed(coding, tsr_tables_get(TSR_TABLES_##set), bits, plane, n, x); \
	}
TSR_PACKED_LOG_LIST(X)
