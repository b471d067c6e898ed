/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of tsr_measure_add().  Sums are written with GNU vector types of one fixed width,
 * so that which lane an element is added to does not depend on the SIMD level.
 */
#include <string.h>

#ifdef __AVX__
#include <immintrin.h>
#endif

#include "codec/isa.h"
#include "tersor/math.h"

#define LANES TSR_MEASURE_LANES

typedef float f32xl __attribute__((vector_size(4 * LANES)));
typedef int32_t i32xl __attribute__((vector_size(4 * LANES)));
typedef float f32xh __attribute__((vector_size(2 * LANES)));
typedef double f64xh __attribute__((vector_size(4 * LANES)));

/* Vector arguments pass through memory: their calling convention differs between levels. */
static inline __attribute__((always_inline)) void load_f32(f32xl *v, const float *p)
{
	memcpy(v, p, sizeof(*v));
}

/* The lower and the upper half of the lanes: as wide as the conversions of AVX2. */
struct f64xl {
	f64xh low, high;
};

static inline __attribute__((always_inline)) void widen(struct f64xl *out, const f32xl *v)
{
	const f32xh low = __builtin_shufflevector(*v, *v, 0, 1, 2, 3);
	const f32xh high = __builtin_shufflevector(*v, *v, 4, 5, 6, 7);

#ifdef __AVX__
	/* gcc 12 makes three instructions and a trip through memory of the general form. */
	out->low = (f64xh)_mm256_cvtps_pd((__m128)low);
	out->high = (f64xh)_mm256_cvtps_pd((__m128)high);
#else
	out->low = __builtin_convertvector(low, f64xh);
	out->high = __builtin_convertvector(high, f64xh);
#endif
}

static inline __attribute__((always_inline)) void add(struct f64xl *sum, const struct f64xl *v)
{
	sum->low += v->low;
	sum->high += v->high;
}

/*
 * The factors are FP32 values, so their product is exact in binary64: fused or not, the sum is
 * rounded once and is the same.
 */
static inline __attribute__((always_inline)) void add_product(struct f64xl *sum,
							      const struct f64xl *a,
							      const struct f64xl *b)
{
#ifdef __FMA__
	sum->low = (f64xh)_mm256_fmadd_pd((__m256d)a->low, (__m256d)b->low, (__m256d)sum->low);
	sum->high = (f64xh)_mm256_fmadd_pd((__m256d)a->high, (__m256d)b->high, (__m256d)sum->high);
#else
	sum->low += a->low * b->low;
	sum->high += a->high * b->high;
#endif
}

static inline __attribute__((always_inline)) void max_i32(i32xl *max, const i32xl *v)
{
	const i32xl more = *v > *max;

	*max = (*v & more) | (*max & ~more);
}

struct sums {
	struct f64xl rel, xx, dd, xd;
	i32xl max_abs; /* as bits, which are ordered like the values */
};

static void add_sums(struct sums *s, const float *x, const float *y, size_t n)
{
	struct f64xl rel = s->rel, xx = s->xx, dd = s->dd, xd = s->xd;
	i32xl max_abs = s->max_abs;

	for (size_t i = 0; i < n; i += LANES) {
		f32xl xv, yv;

		load_f32(&xv, x + i);
		load_f32(&yv, y + i);

		const f32xl d = xv - yv;
		const i32xl abs_d_bits = (i32xl)d & (int32_t)TSR_F32_MAG;
		const f32xl abs_x = (f32xl)((i32xl)xv & (int32_t)TSR_F32_MAG);
		const f32xl quotient = (f32xl)abs_d_bits / abs_x;
		const f32xl relative = (f32xl)((i32xl)quotient & (abs_x != 0.0f));
		struct f64xl relw, xw, dw;

		widen(&relw, &relative);
		widen(&xw, &xv);
		widen(&dw, &d);
		add(&rel, &relw);
		add_product(&xx, &xw, &xw);
		add_product(&dd, &dw, &dw);
		add_product(&xd, &xw, &dw);
		max_i32(&max_abs, &abs_d_bits);
	}
	s->rel = rel;
	s->xx = xx;
	s->dd = dd;
	s->xd = xd;
	s->max_abs = max_abs;
}

struct counts {
	uint32_t different, negative, flushed, zeros, max_ulp;
	int32_t max_mag; /* of both sides, as bits */
	int32_t opposite; /* negative if some x and y have opposite signs, neither being 0 */
};

/*
 * Integers may be added in any order, so this one is left to the compiler's vectoriser.  max_ulp
 * is right unless signs are opposite.
 */
static void add_counts(struct counts *c, const float *x, const float *y, size_t n)
{
	uint32_t different = 0, negative = 0, flushed = 0, zeros = 0, max_ulp = 0;
	int32_t max_mag = 0, opposite = 0;

	for (size_t i = 0; i < n; i++) {
		const int32_t xb = (int32_t)tsr_bits_from_f32(x[i]);
		const int32_t yb = (int32_t)tsr_bits_from_f32(y[i]);
		const int32_t x_mag = xb & (int32_t)TSR_F32_MAG, y_mag = yb & (int32_t)TSR_F32_MAG;
		const int32_t larger = x_mag > y_mag ? x_mag : y_mag;
		const int32_t smaller = x_mag > y_mag ? y_mag : x_mag;
		const uint32_t ulp = (uint32_t)(larger - smaller);

		different += xb != yb;
		negative += (uint32_t)xb >> 31;
		zeros += x_mag == 0;
		flushed += (y_mag == 0) & (x_mag != 0);
		max_mag = larger > max_mag ? larger : max_mag;
		max_ulp = ulp > max_ulp ? ulp : max_ulp;
		opposite |= smaller ? xb ^ yb : 0;
	}
	*c = (struct counts){ different, negative, flushed, zeros, max_ulp, max_mag, opposite };
}

/* The rare strip in which signs change: their distance goes through zero. */
static uint32_t max_ulp_of(const float *x, const float *y, size_t n)
{
	uint32_t max_ulp = 0;

	for (size_t i = 0; i < n; i++) {
		const uint32_t xb = tsr_bits_from_f32(x[i]), yb = tsr_bits_from_f32(y[i]);
		const uint32_t x_mag = xb & TSR_F32_MAG, y_mag = yb & TSR_F32_MAG;
		const uint32_t same = x_mag > y_mag ? x_mag - y_mag : y_mag - x_mag;
		const uint32_t ulp = (xb ^ yb) & TSR_F32_SIGN ? x_mag + y_mag : same;

		max_ulp = ulp > max_ulp ? ulp : max_ulp;
	}
	return max_ulp;
}

/* -0 is not negative. */
static uint32_t count_negative_zeros(const float *x, size_t n)
{
	uint32_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += tsr_bits_from_f32(x[i]) == TSR_F32_SIGN;
	return count;
}

/* The rare strip in which something is not finite. */
static void add_nonfinite(struct tsr_measure *m, const float *x, const float *y, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const bool x_finite = (tsr_bits_from_f32(x[i]) & TSR_F32_INF) != TSR_F32_INF;
		const bool y_finite = (tsr_bits_from_f32(y[i]) & TSR_F32_INF) != TSR_F32_INF;

		m->nonfinite += !x_finite;
		m->overflow += x_finite && !y_finite;
	}
}

/* Elements between two folds of the 32-bit counts; short enough to stay in the L1 cache. */
#define STRIP 4096

static void add_strip(struct tsr_measure *m, struct sums *s, const float *x, const float *y,
		      size_t n)
{
	struct counts c;

	add_sums(s, x, y, n);
	add_counts(&c, x, y, n);
	m->exact += n - c.different;
	m->negative += c.negative;
	if (c.negative && c.zeros)
		m->negative -= count_negative_zeros(x, n);
	if (c.opposite < 0)
		c.max_ulp = max_ulp_of(x, y, n);
	m->flushed += c.flushed;
	m->zeros += c.zeros;
	m->max_ulp = c.max_ulp > m->max_ulp ? c.max_ulp : m->max_ulp;
	if (c.max_mag >= (int32_t)TSR_F32_INF)
		add_nonfinite(m, x, y, n);
}

void TSR_FOR_ISA(measure_add)(struct tsr_measure *m, const float *x, const float *y, size_t n)
{
	const size_t whole = n - n % LANES;
	struct sums s = { 0 };

	memcpy(&s.rel, m->sum_rel, sizeof(s.rel));
	memcpy(&s.xx, m->sum_xx, sizeof(s.xx));
	memcpy(&s.dd, m->sum_dd, sizeof(s.dd));
	memcpy(&s.xd, m->sum_xd, sizeof(s.xd));
	for (size_t i = 0; i < whole; i += STRIP)
		add_strip(m, &s, x + i, y + i, whole - i < STRIP ? whole - i : STRIP);
	if (n > whole) {
		float x_tail[LANES] = { 0 }, y_tail[LANES] = { 0 };
		const uint64_t padding = LANES - (n - whole);

		memcpy(x_tail, x + whole, (n - whole) * sizeof(*x));
		memcpy(y_tail, y + whole, (n - whole) * sizeof(*y));
		add_strip(m, &s, x_tail, y_tail, LANES);
		m->exact -= padding;
		m->zeros -= padding;
	}
	m->n += n;
	memcpy(m->sum_rel, &s.rel, sizeof(s.rel));
	memcpy(m->sum_xx, &s.xx, sizeof(s.xx));
	memcpy(m->sum_dd, &s.dd, sizeof(s.dd));
	memcpy(m->sum_xd, &s.xd, sizeof(s.xd));
	for (int i = 0; i < LANES; i++)
		m->max_abs = tsr_max_magnitude(m->max_abs,
					       tsr_f32_from_bits((uint32_t)s.max_abs[i]));
}
