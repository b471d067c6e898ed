/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of contexts: runs of elements of one row that share their scales. */
#include "entropy/contexts.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "entropy/rans_math.h"
#include "entropy/scale_runs.h"

#define INLINE static inline __attribute__((always_inline))

/* --- Runs ---------------------------------------------------------------------------------------- */

/* What is written is no part of what is read, or there would be no SIMD code. */
static uint32_t add_any(const uint8_t *restrict codes, uint32_t n, int32_t scale,
			uint32_t *restrict columns)
{
	uint32_t sum = 0;

	for (uint32_t k = 0; k < n; k++) {
		const uint32_t level = (uint32_t)(scale + tsr_rans_code_level(codes[k]));

		sum += level;
		columns[k] += level;
	}
	return sum;
}

static void of_any_columns(const int8_t *restrict columns, uint32_t n, int32_t lowest,
			   uint8_t *restrict contexts)
{
	for (uint32_t k = 0; k < n; k++)
		contexts[k] = tsr_rans_context(columns[k], lowest, TSR_RANS_VARIANCE_SHIFT);
}

/* Most groups have 32 elements. */
#define USUAL 32u

#ifdef __AVX2__
INLINE __m256i load(const void *from)
{
	return _mm256_loadu_si256((const __m256i *)from);
}

INLINE void store(void *to, __m256i x)
{
	_mm256_storeu_si256((__m256i *)to, x);
}

INLINE __m256i all(int32_t x)
{
	return _mm256_set1_epi8((char)x);
}

/* Bytes shifted to the right. */
#define SHIFTED(x, by) _mm256_and_si256(_mm256_srli_epi16(x, by), all(0xff >> (by)))

/*
 * tsr_rans_code_level() of 32 codes: from 16 on the least of the lines that it runs along between powers
 * of two, by a table below.
 */
INLINE __m256i levels_of(__m256i codes)
{
	const __m256i table = _mm256_broadcastsi128_si256(
		_mm_setr_epi8(0, 0, 16, 24, 32, 36, 40, 44, 48, 50, 52, 54, 56, 58, 60, 62));
	const __m256i a = _mm256_adds_epu8(codes, all(48));
	const __m256i b = _mm256_add_epi8(SHIFTED(codes, 1), all(64));
	const __m256i c = _mm256_add_epi8(SHIFTED(codes, 2), all(80));
	const __m256i d = _mm256_add_epi8(SHIFTED(codes, 3), all(96));
	const __m256i line = _mm256_min_epu8(_mm256_min_epu8(a, b), _mm256_min_epu8(c, d));
	const __m256i small = _mm256_cmpeq_epi8(_mm256_min_epu8(codes, all(15)), codes);

	return _mm256_blendv_epi8(line, _mm256_shuffle_epi8(table, codes), small);
}

/* tsr_rans_context() of 32 levels of 0 to 255; of @lowest some that is negative remains to be added. */
INLINE __m256i contexts_of(__m256i levels, int32_t lowest)
{
	const int32_t less = lowest < 0 ? 0 : lowest > 255 ? 255 : lowest;
	const int32_t more = lowest > 0 ? 0 : lowest < -255 ? 255 : -lowest;
	const int32_t most = ((int32_t)TSR_RANS_CONTEXT_COUNT << TSR_RANS_VARIANCE_SHIFT) - 1;
	const __m256i above = _mm256_subs_epu8(_mm256_adds_epu8(levels, all(more)), all(less));

	return SHIFTED(_mm256_min_epu8(above, all(most)), TSR_RANS_VARIANCE_SHIFT);
}

static uint32_t add_usual(const uint8_t *codes, int32_t scale, uint32_t *columns)
{
	const __m256i levels = levels_of(load(codes));
	const __m256i sums = _mm256_sad_epu8(levels, _mm256_setzero_si256());
	const __m128i two = _mm_add_epi32(_mm256_castsi256_si128(sums),
					  _mm256_extracti128_si256(sums, 1));
	const __m256i scales = _mm256_set1_epi32(scale);
	uint8_t bytes[USUAL];

	store(bytes, levels);
	for (unsigned k = 0; k < USUAL; k += 8) {
		const __m256i eight = _mm256_cvtepu8_epi32(
			_mm_loadl_epi64((const __m128i *)(const void *)(bytes + k)));

		store(columns + k,
		      _mm256_add_epi32(load(columns + k), _mm256_add_epi32(eight, scales)));
	}
	return USUAL * (uint32_t)scale + (uint32_t)_mm_cvtsi128_si32(two) +
	       (uint32_t)_mm_extract_epi32(two, 2);
}

/* Moved by 128, columns are not negative. */
static void of_usual_columns(const int8_t *columns, int32_t lowest, uint8_t *contexts)
{
	store(contexts, contexts_of(_mm256_xor_si256(load(columns), all(0x80)), lowest + 128));
}
#else
static uint32_t add_usual(const uint8_t *codes, int32_t scale, uint32_t *columns)
{
	return add_any(codes, USUAL, scale, columns);
}

static void of_usual_columns(const int8_t *columns, int32_t lowest, uint8_t *contexts)
{
	of_any_columns(columns, USUAL, lowest, contexts);
}
#endif

static uint32_t add_logs(const uint8_t *restrict codes, uint32_t n, int32_t scale, int32_t range,
			 uint32_t *restrict columns)
{
	uint32_t sum = 0;

	for (uint32_t k = 0; k < n; k++) {
		const uint32_t level = (uint32_t)(scale + tsr_rans_log_code_level(codes[k], range));

		sum += level;
		columns[k] += level;
	}
	return sum;
}

static void of_log_columns(const int8_t *restrict columns, uint32_t n, int32_t above,
			   int32_t per_level, uint8_t *restrict contexts)
{
	for (uint32_t k = 0; k < n; k++)
		contexts[k] = tsr_rans_log_context(above + columns[k], per_level);
}

/* --- Pieces ------------------------------------------------------------------------------------ */

/*
 * A walk over the runs of a piece: elements of one row, from one column on, that have one scale, or whole
 * groups of the usual size, which have one each.
 */
struct walk {
	struct tsr_scale_run at;
	uint64_t columns, column; /* of the tensor; that of the run's first element */
	size_t row, first,
		size; /* the run's row, counted from the piece's first, its first element, its size */
	const uint16_t *scales;
	size_t groups; /* 0: there is one scale */
};

static struct walk walk_begin(const struct tsr_entropy_variance *v)
{
	return (struct walk){ .at = tsr_scale_run_begin(&v->scales, v->first),
			      .columns = v->columns,
			      .column = v->first % v->columns };
}

/* On to the first run, or the next one, of a piece of @n elements; false if there is none. */
INLINE bool walk_on(struct walk *w, size_t n)
{
	uint64_t most;

	w->first += w->size;
	w->column += w->size;
	if (w->first == n)
		return false;
	if (w->column == w->columns) {
		w->column = 0;
		w->row++;
	}
	most = tsr_scale_run_least(w->columns - w->column, n - w->first);
	w->scales = w->at.scale;
	w->groups = tsr_scale_run_groups(&w->at, USUAL, most / USUAL);
	w->size = w->groups ? w->groups * USUAL : tsr_scale_run_least(w->at.left, most);
	if (w->groups)
		tsr_scale_run_skip(&w->at, w->groups);
	else
		tsr_scale_run_advance(&w->at, (uint32_t)w->size);
	return true;
}

/* What is added in a run to its row. */
INLINE uint32_t add_run(const struct walk *w, const uint8_t *codes, uint32_t *columns)
{
	uint32_t sum = 0;

	if (!w->groups)
		return add_any(codes, (uint32_t)w->size, tsr_rans_scale_level(*w->scales), columns);
	for (size_t i = 0; i < w->groups; i++)
		sum += add_usual(codes + i * USUAL, tsr_rans_scale_level(w->scales[i]),
				 columns + i * USUAL);
	return sum;
}

void TSR_FOR_ISA(contexts_sums)(const struct tsr_entropy_variance *v, const uint8_t *codes,
				size_t n, uint32_t *rows, uint32_t *columns)
{
	struct walk w = walk_begin(v);

	while (walk_on(&w, n))
		rows[w.row] += add_run(&w, codes + w.first, columns + w.column);
}

void TSR_FOR_ISA(contexts_log_sums)(const struct tsr_entropy_variance *v, const uint8_t *codes,
				    size_t n, uint32_t *rows, uint32_t *columns)
{
	struct walk w = walk_begin(v);

	while (walk_on(&w, n)) {
		const size_t size = w.groups ? USUAL : w.size;

		for (size_t i = 0; i * size < w.size; i++)
			rows[w.row] += add_logs(codes + w.first + i * size, (uint32_t)size,
						tsr_rans_scale_level(w.scales[i]),
						tsr_rans_log_range(w.scales[i]),
						columns + w.column + i * size);
	}
}

void TSR_FOR_ISA(contexts_of_roots)(const struct tsr_entropy_variance *v,
				    const struct tsr_contexts_means *m, size_t n, uint8_t *contexts)
{
	struct walk w = walk_begin(v);

	while (walk_on(&w, n)) {
		const int32_t lowest = TSR_RANS_VARIANCE_LOWEST - m->all - m->rows[w.row];
		const int8_t *columns = m->columns + w.column;

		if (!w.groups)
			of_any_columns(columns, (uint32_t)w.size,
				       lowest + tsr_rans_scale_level(*w.scales),
				       contexts + w.first);
		for (size_t i = 0; i < w.groups; i++)
			of_usual_columns(columns + i * USUAL,
					 lowest + tsr_rans_scale_level(w.scales[i]),
					 contexts + w.first + i * USUAL);
	}
}

void TSR_FOR_ISA(contexts_of_logs)(const struct tsr_entropy_variance *v,
				   const struct tsr_contexts_means *m, size_t n, uint8_t *contexts)
{
	struct walk w = walk_begin(v);

	while (walk_on(&w, n)) {
		const size_t size = w.groups ? USUAL : w.size;

		for (size_t i = 0; i * size < w.size; i++) {
			const uint16_t scale = w.scales[i];

			of_log_columns(m->columns + w.column + i * size, (uint32_t)size,
				       m->all + m->rows[w.row] - tsr_rans_scale_level(scale) -
					       TSR_RANS_LOG_HIGHEST,
				       65536 / tsr_rans_log_range(scale),
				       contexts + w.first + i * size);
		}
	}
}
