/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what came back with what went in, and counting. */
#include <string.h>

#ifdef __AVX__
#include <immintrin.h>
#endif

#include "codec/isa.h"
#include "sweep/kernels.h"
#include "tersor/sweep_math.h"

#define LANES 8

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

/*
 * The sum of @n multiples of 2^-47 below 2, in that unit; @n is a multiple of LANES.  From 32 to 64
 * the last place of binary64 is 2^-47: so 16 terms added to 32 are an integer sum in the mantissa.
 */
static uint64_t sum_terms(const float *rel, size_t n)
{
	const f64x4 start = { 32, 32, 32, 32 };
	u64x4 total = { 0 };

	for (size_t i = 0; i < n; i += 16 * LANES) {
		const size_t end = n - i < 16 * LANES ? n : i + 16 * LANES;
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

/* `small` is a constant in the functions below: it chooses the way to the same quotient. */
static inline __attribute__((always_inline)) float relative(float x, float y, const bool small)
{
	return small ? tsr_sweep_relative_small(x, y) : tsr_sweep_relative(x, y);
}

/*
 * For strips without zeros whose values all come back finite and with their sign: most of them.
 * Then the distance in ULP is the difference of the bit patterns, and no relative error is above 1
 * (a codec that overshoots by more is counted the other way, too).  Returns whether it was so; if
 * not, the counts mean nothing.
 */
static inline __attribute__((always_inline)) bool count_simple(const float *restrict x,
							       const float *restrict y, size_t n,
							       float *restrict rel,
							       struct counts *c, const bool small)
{
	uint32_t exact = 0, max_ulp = 0, max_changed = 0;
	int32_t max_rel = 0;

	for (size_t i = 0; i < n; i++) {
		const uint32_t xb = tsr_bits_from_f32(x[i]), yb = tsr_bits_from_f32(y[i]);
		const uint32_t distance = yb - xb, changed = xb ^ yb;
		const uint32_t ulp = (int32_t)distance < 0 ? 0 - distance : distance;
		const float r = relative(x[i], y[i], small);
		const int32_t r_bits = (int32_t)tsr_bits_from_f32(r);

		rel[i] = r;
		exact += xb == yb;
		/* From the sign bit on, a sign was lost. */
		max_changed = changed > max_changed ? changed : max_changed;
		max_ulp = ulp > max_ulp ? ulp : max_ulp;
		max_rel = r_bits > max_rel ? r_bits : max_rel;
	}
	*c = (struct counts){
		.exact = exact, .compared = (uint32_t)n, .max_ulp = max_ulp, .max_rel = max_rel
	};
	return max_changed < TSR_F32_SIGN && max_rel <= 0x3f800000;
}

/* For finite x, whatever comes back. */
static inline __attribute__((always_inline)) void count_any(const float *restrict x,
							    const float *restrict y, size_t n,
							    float *restrict rel, struct counts *c,
							    const bool small)
{
	uint32_t exact = 0, overflow = 0, nan_out = 0, compared = 0, max_ulp = 0;
	int32_t max_rel = 0;

	for (size_t i = 0; i < n; i++) {
		const uint32_t xb = tsr_bits_from_f32(x[i]), yb = tsr_bits_from_f32(y[i]);
		const int32_t y_mag = (int32_t)(yb & TSR_F32_MAG);
		const uint32_t is_finite = y_mag < (int32_t)TSR_F32_INF;
		const uint32_t is_compared = is_finite & ((xb & TSR_F32_MAG) != 0);
		/* Masks: with conditions on conditions the compiler makes branches of them. */
		const uint32_t ulp = tsr_sweep_ulp(xb, yb) & (0 - is_finite);
		const float quotient = relative(x[i], y[i], small);
		const int32_t r_bits = (int32_t)(tsr_bits_from_f32(quotient) & (0 - is_compared));

		rel[i] = tsr_f32_from_bits((uint32_t)r_bits);
		exact += xb == yb;
		overflow += y_mag == (int32_t)TSR_F32_INF;
		nan_out += y_mag > (int32_t)TSR_F32_INF;
		compared += is_compared;
		max_ulp = ulp > max_ulp ? ulp : max_ulp;
		max_rel = r_bits > max_rel ? r_bits : max_rel;
	}
	*c = (struct counts){ exact, overflow, nan_out, compared, max_ulp, max_rel };
}

/* Functions of their own: what becomes of the counts kept clang 14 from vectorising the loops. */
#define DEFINE_COUNTS(id, small) \
	static __attribute__((noinline)) bool simple_##id(const float *x, const float *y, \
							  size_t n, float *rel, struct counts *c) \
	{ \
		return count_simple(x, y, n, rel, c, small); \
	} \
\
	static __attribute__((noinline)) void any_##id(const float *x, const float *y, size_t n, \
						       float *rel, struct counts *c) \
	{ \
		count_any(x, y, n, rel, c, small); \
	}

DEFINE_COUNTS(small, true)
DEFINE_COUNTS(large, false)

/* @anything: what comes back is known not to be simple. */
static void count_finite(const float *x, const float *y, size_t n, bool anything, float *rel,
			 struct counts *c)
{
	const bool small = tsr_exponent_bits(x[0]) < TSR_SWEEP_SMALL;

	if (!anything && (small ? simple_small : simple_large)(x, y, n, rel, c))
		return;
	(small ? any_small : any_large)(x, y, n, rel, c);
}

/* Infinities and NaN. */
static void tally_special(const float *x, const float *y, size_t n, struct tsr_sweep_row *row)
{
	for (size_t i = 0; i < n; i++) {
		const uint32_t xb = tsr_bits_from_f32(x[i]), yb = tsr_bits_from_f32(y[i]);

		row->exact += xb == yb;
		row->nan_in += (xb & TSR_F32_MAG) > TSR_F32_INF;
		row->nan_out += (yb & TSR_F32_MAG) > TSR_F32_INF;
	}
}

X_DECLARE_SWEEP(base)
X_DECLARE_SWEEP(avx2)
X_DECLARE_SWEEP(avx512)

void TSR_FOR_ISA(sweep_tally)(struct tsr_sweep_strip *s, size_t first, size_t n,
			      struct tsr_sweep_row *row)
{
	const float *x = s->x + first, *y = s->y + first;
	const size_t count = n - first;
	struct counts c;
	float max_rel;

	row->count += count;
	if (tsr_exponent_bits(x[0]) == (int32_t)TSR_F32_INF) {
		tally_special(x, y, count, row);
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
