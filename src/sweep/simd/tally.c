/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what came back with what went in, and counting. */
#include <string.h>

#ifdef __AVX__
#include <immintrin.h>
#endif

#include "sweep/kernels.h"
#include "codec/sweep_math.h"

#define LANES 8
#define TERMS ((size_t)TSR_SWEEP_SUM_TERMS * LANES)

/* --- The sum of relative errors --------------------------------------------------------------- */

typedef double f64x4 __attribute__((vector_size(32)));
typedef uint64_t u64x4 __attribute__((vector_size(32)));
typedef float f32x4 __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) void load_wide(f64x4 *v, const float *p)
{
#ifdef __AVX__
	/* gcc 12 makes three instructions and a trip through memory of the general form. */
	*v = (f64x4)_mm256_cvtps_pd(_mm_loadu_ps(p));
#else
	f32x4 narrow;

	memcpy(&narrow, p, sizeof(narrow));
	*v = __builtin_convertvector(narrow, f64x4);
#endif
}

/* The sum of @n multiples of 2^-47 below 2, in that unit; @n is a multiple of LANES. */
static uint64_t sum_terms(const float *rel, size_t n)
{
	const double from = TSR_SWEEP_SUM_START;
	const f64x4 start = { from, from, from, from };
	u64x4 total = { 0 };

	for (size_t i = 0; i < n; i += TERMS) {
		const size_t end = n - i < TERMS ? n : i + TERMS;
		f64x4 low = start, high = start;

		for (size_t j = i; j < end; j += LANES) {
			f64x4 a, b;

			load_wide(&a, rel + j);
			load_wide(&b, rel + j + 4);
			low += a;
			high += b;
		}
		total += ((u64x4)low - (u64x4)start) + ((u64x4)high - (u64x4)start);
	}
	return total[0] + total[1] + total[2] + total[3];
}

static void add_terms(const float *rel, size_t n, float max, struct tsr_sweep_row *row)
{
	const size_t whole = max < 2.0f ? n - n % LANES : 0;
	uint64_t sum;

	if (max == 0.0f)
		return;
	sum = sum_terms(rel, whole);
	row->rel_sum[1] += __builtin_add_overflow(row->rel_sum[0], sum, &row->rel_sum[0]);
	for (size_t i = whole; i < n; i++) {
		sum = tsr_sweep_term(rel[i]);
		row->rel_sum[1] += __builtin_add_overflow(row->rel_sum[0], sum, &row->rel_sum[0]);
	}
}

/* --- Counting --------------------------------------------------------------------------------- */

struct counts {
	uint32_t exact, overflow, nan_out, compared;
	uint32_t max_ulp;
	int32_t max_rel; /* as bits, which are ordered like the values */
};

/* The maximum of two is two instructions for signed integers only; magnitudes are below 2^31. */
static inline int32_t max_i32(int32_t a, int32_t b)
{
	return a > b ? a : b;
}

/*
 * For batches without zeros, most of which are simple.  Returns whether this one was; if not, the
 * counts mean nothing.
 *
 * Functions of their own: what becomes of the counts kept clang 14 from vectorising the loops.
 */
static __attribute__((noinline)) bool count_simple(const float *restrict x, const float *restrict y,
						   size_t n, float unit, float *restrict rel,
						   struct counts *c)
{
	uint32_t exact = 0, max_ulp = 0, max_changed = 0;
	int32_t max_rel = 0;

	for (size_t i = 0; i < n; i++) {
		const struct tsr_sweep_simple o = tsr_sweep_simple_outcome(x[i], y[i]);
		const float r = tsr_sweep_error(x[i], y[i], unit) / tsr_sweep_size(x[i], unit);

		rel[i] = r;
		exact += o.exact;
		max_changed = o.changed > max_changed ? o.changed : max_changed;
		max_ulp = o.ulp > max_ulp ? o.ulp : max_ulp;
		max_rel = max_i32((int32_t)tsr_bits_from_f32(r), max_rel);
	}
	*c = (struct counts){
		.exact = exact, .compared = (uint32_t)n, .max_ulp = max_ulp, .max_rel = max_rel
	};
	return tsr_sweep_was_simple(max_changed, (uint32_t)max_rel);
}

/* For finite x, whatever comes back. */
static __attribute__((noinline)) void count_any(const float *restrict x, const float *restrict y,
						size_t n, float unit, float *restrict rel,
						struct counts *c)
{
	uint32_t exact = 0, overflow = 0, nan_out = 0, compared = 0, max_ulp = 0;
	int32_t max_rel = 0;

	for (size_t i = 0; i < n; i++) {
		const float r = tsr_sweep_error(x[i], y[i], unit) / tsr_sweep_size(x[i], unit);
		const struct tsr_sweep_outcome o = tsr_sweep_finite_outcome(x[i], y[i], r);

		rel[i] = tsr_f32_from_bits(o.rel_bits);
		exact += o.exact;
		overflow += o.overflow;
		nan_out += o.nan_out;
		compared += o.compared;
		max_ulp = o.ulp > max_ulp ? o.ulp : max_ulp;
		max_rel = max_i32((int32_t)o.rel_bits, max_rel);
	}
	*c = (struct counts){ exact, overflow, nan_out, compared, max_ulp, max_rel };
}

/* @anything: what comes back is known not to be simple. */
static void count_finite(const float *x, const float *y, size_t n, bool anything, float *rel,
			 struct counts *c)
{
	const float unit = tsr_sweep_unit((uint32_t)tsr_exponent_bits(x[0]) >> 23);

	if (anything || !count_simple(x, y, n, unit, rel, c))
		count_any(x, y, n, unit, rel, c);
}

void TSR_FOR_ISA(sweep_tally)(struct tsr_sweep_batch *s, size_t first, size_t n,
			      struct tsr_sweep_row *row)
{
	const float *x = s->x + first, *y = s->y + first;
	const size_t count = n - first;
	struct counts c;
	float max_rel;

	row->count += count;
	if (tsr_exponent_bits(x[0]) == (int32_t)TSR_F32_INF) {
		/* Infinities and NaN. */
		for (size_t i = 0; i < count; i++) {
			const uint32_t xb = tsr_bits_from_f32(x[i]), yb = tsr_bits_from_f32(y[i]);

			row->exact += xb == yb;
			row->nan_in += (xb & TSR_F32_MAG) > TSR_F32_INF;
			row->nan_out += (yb & TSR_F32_MAG) > TSR_F32_INF;
		}
		return;
	}
	count_finite(x, y, count, tsr_abs(x[0]) == 0.0f || row->overflow, s->rel, &c);
	max_rel = tsr_f32_from_bits((uint32_t)c.max_rel);
	add_terms(s->rel, count, max_rel, row);
	row->exact += c.exact;
	row->overflow += c.overflow;
	row->nan_out += c.nan_out;
	row->compared += c.compared;
	row->max_ulp = c.max_ulp > row->max_ulp ? c.max_ulp : row->max_ulp;
	row->max_rel = max_rel > row->max_rel ? max_rel : row->max_rel;
}
