/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of tsr_measure_add().  Sums are written with GNU vector types of one fixed width,
 * so that which lane an element is added to does not depend on the SIMD level.
 */
#include <float.h>
#include <string.h>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "codec/loops.h"
#include "codec/math.h"
#include "codec/measuring.h"

#define LANES TSR_MEASURE_LANES
#define INLINE static inline __attribute__((always_inline))
#define LOOP static __attribute__((noinline)) /* so that the registers are its own */

typedef float f32xl __attribute__((vector_size(4 * LANES)));
typedef int32_t i32xl __attribute__((vector_size(4 * LANES)));
typedef uint32_t u32xl __attribute__((vector_size(4 * LANES)));
typedef float f32xh __attribute__((vector_size(2 * LANES)));
typedef double f64xq __attribute__((vector_size(2 * LANES)));
typedef double f64xh __attribute__((vector_size(4 * LANES)));

/* Vector arguments pass through memory: their calling convention differs between levels. */
INLINE void load_f32(f32xl *v, const float *p)
{
	memcpy(v, p, sizeof(*v));
}

/* The lower and the upper half of the lanes: as wide as the conversions of AVX2. */
struct f64xl {
	f64xh low, high;
};

INLINE f64xh widen_half(f32xh v)
{
#if defined(__AVX__)
	return (f64xh)_mm256_cvtps_pd((__m128)v);
#elif defined(__SSE2__)
	/* gcc 12 makes a trip through memory of the general form. */
	const f64xq quarters[2] = { (f64xq)_mm_cvtps_pd((__m128)v),
				    (f64xq)_mm_cvtps_pd(_mm_movehl_ps((__m128)v, (__m128)v)) };
	f64xh wide;

	memcpy(&wide, quarters, sizeof(wide));
	return wide;
#else
	return __builtin_convertvector(v, f64xh);
#endif
}

INLINE void widen(struct f64xl *out, const f32xl *v)
{
	out->low = widen_half(__builtin_shufflevector(*v, *v, 0, 1, 2, 3));
#ifdef __AVX__
	out->high = widen_half((f32xh)_mm256_extractf128_ps((__m256)*v, 1));
#else
	out->high = widen_half(__builtin_shufflevector(*v, *v, 4, 5, 6, 7));
#endif
}

/* Widening what comes from memory takes fewer steps than widening halves of a register. */
INLINE f32xh load_half(const float *p)
{
	f32xh v;

	memcpy(&v, p, sizeof(v));
	return v;
}

INLINE void add(struct f64xl *sum, const struct f64xl *v)
{
	sum->low += v->low;
	sum->high += v->high;
}

/*
 * The factors are FP32 values, so their product is exact in binary64: fused or not, the sum is
 * rounded once and is the same.
 */
INLINE void add_product(struct f64xl *sum, const struct f64xl *a, const struct f64xl *b)
{
#ifdef __FMA__
	sum->low = (f64xh)_mm256_fmadd_pd((__m256d)a->low, (__m256d)b->low, (__m256d)sum->low);
	sum->high = (f64xh)_mm256_fmadd_pd((__m256d)a->high, (__m256d)b->high, (__m256d)sum->high);
#else
	sum->low += a->low * b->low;
	sum->high += a->high * b->high;
#endif
}

/*
 * gcc 12 makes scalar code of comparisons of vectors that are wider than the registers, so where
 * they are, comparisons are made of other operations.
 */
INLINE i32xl equal(const i32xl *a, const i32xl *b)
{
#ifdef __AVX2__
	return *a == *b;
#else
	const i32xl different = *a ^ *b;

	return ~((different | (i32xl) - (u32xl)different) >> 31);
#endif
}

INLINE i32xl not_zero(const f32xl *v)
{
#ifdef __AVX2__
	return *v != 0.0f;
#else
	return -((i32xl)*v & (int32_t)TSR_F32_MAG) >> 31;
#endif
}

/* Of integers from 0 on. */
INLINE void max_i32(i32xl *max, const i32xl *v)
{
#ifdef __AVX2__
	*max = (i32xl)_mm256_max_epi32((__m256i)*max, (__m256i)*v);
#else
	const i32xl more = (i32xl)((u32xl)*v - (u32xl)*max);

	*max = (i32xl)((u32xl)*max + (u32xl)(more & ~(more >> 31)));
#endif
}

/* Places of values among the floats, from their magnitudes' bits: -0 and +0 are 0. */
INLINE i32xl place_of(const i32xl *magnitude, const f32xl *v)
{
#ifdef __AVX2__
	return (i32xl)_mm256_sign_epi32((__m256i)*magnitude, (__m256i)*v);
#else
	const i32xl sign = (i32xl)*v >> 31;

	return (*magnitude ^ sign) - sign;
#endif
}

INLINE i32xl abs_i32(const i32xl *v)
{
#ifdef __AVX2__
	return (i32xl)_mm256_abs_epi32((__m256i)*v);
#else
	const i32xl sign = *v >> 31;

	return (i32xl)((u32xl)(*v ^ sign) - (u32xl)sign);
#endif
}

/* How many lanes have had their sign bit set, over all or in each. */
#ifdef __AVX2__
typedef uint32_t counter;

INLINE void count(counter *c, const i32xl *v)
{
	*c += (uint32_t)__builtin_popcount((unsigned)_mm256_movemask_ps((__m256)*v));
	__asm__("" : "+r"(*c)); /* no putting together of several counters into a vector */
}

static uint32_t counter_value(const counter *c)
{
	return *c;
}
#else
typedef i32xl counter;

INLINE void count(counter *c, const i32xl *v)
{
	*c -= *v >> 31;
}

static uint32_t counter_value(const counter *c)
{
	uint32_t sum = 0;

	for (int i = 0; i < LANES; i++)
		sum += (uint32_t)(*c)[i];
	return sum;
}
#endif

/*
 * Two loops: together they would need more registers than there are, and sums that live in memory
 * wait for it at every step.
 */
struct products {
	struct f64xl xx, dd, xd;
};

LOOP void add_products(struct products *s, const float *x, const float *y, size_t n)
{
	struct f64xl xx = s->xx, dd = s->dd, xd = s->xd;

	for (size_t i = 0; i < n; i += LANES) {
		const f32xh x_low = load_half(x + i), x_high = load_half(x + i + LANES / 2);
		const f32xh d_low = x_low - load_half(y + i);
		const f32xh d_high = x_high - load_half(y + i + LANES / 2);
		const struct f64xl xw = { widen_half(x_low), widen_half(x_high) };
		const struct f64xl dw = { widen_half(d_low), widen_half(d_high) };

		add_product(&xx, &xw, &xw);
		add_product(&dd, &dw, &dw);
		add_product(&xd, &xw, &dw);
	}
	s->xx = xx;
	s->dd = dd;
	s->xd = xd;
}

/* Of one batch. */
struct counts {
	counter same, negative, flushed, nonzero;
	i32xl max_ulp, max_abs; /* as bits, which are ordered like the values */
};

LOOP void add_relative(struct f64xl *rel_sum, struct counts *c, const float *x, const float *y,
		       size_t n)
{
	const i32xl zero = { 0 };
	struct f64xl rel = *rel_sum;
	counter same = { 0 }, negative = { 0 }, flushed = { 0 }, nonzero = { 0 };
	i32xl max_ulp = zero, max_abs = zero;

	for (size_t i = 0; i < n; i += LANES) {
		f32xl xv, yv;

		load_f32(&xv, x + i);
		load_f32(&yv, y + i);

		const f32xl d = xv - yv;
		const i32xl x_bits = (i32xl)xv, y_bits = (i32xl)yv;
		const i32xl x_mag = x_bits & (int32_t)TSR_F32_MAG;
		const i32xl y_mag = y_bits & (int32_t)TSR_F32_MAG;
		const i32xl d_mag = (i32xl)d & (int32_t)TSR_F32_MAG;
		const i32xl x_nonzero = not_zero(&xv), y_nonzero = not_zero(&yv);
		const f32xl quotient = (f32xl)d_mag / (f32xl)x_mag;
		const f32xl relative = (f32xl)((i32xl)quotient & x_nonzero);
		/* May wrap: add_batch() sees that it can have, and takes the long way. */
		const i32xl distance = (i32xl)((u32xl)place_of(&x_mag, &xv) -
					       (u32xl)place_of(&y_mag, &yv));
		const i32xl ulp = abs_i32(&distance);
		const i32xl x_same = equal(&x_bits, &y_bits), x_flushed = x_nonzero & ~y_nonzero;
		struct f64xl relw;

		widen(&relw, &relative);
		add(&rel, &relw);
		max_i32(&max_abs, &d_mag);
		max_i32(&max_ulp, &ulp);
		count(&same, &x_same);
		count(&negative, &x_bits);
		count(&nonzero, &x_nonzero);
		count(&flushed, &x_flushed);
	}
	*rel_sum = rel;
	*c = (struct counts){ same, negative, flushed, nonzero, max_ulp, max_abs };
}

static int32_t lane_max(const i32xl *v)
{
	int32_t max = 0;

	for (int i = 0; i < LANES; i++)
		max = (*v)[i] > max ? (*v)[i] : max;
	return max;
}

/*
 * Whether all x and y so far are finite.  The squares of x are sums in binary64 of values that it
 * holds; those of d can be infinite where x and y are not, which costs time only.
 */
static bool all_finite(const struct products *s)
{
	const f64xh total = (s->xx.low + s->xx.high) + (s->dd.low + s->dd.high);
	bool finite = true;

	for (int i = 0; i < LANES / 2; i++)
		finite = finite && total[i] <= DBL_MAX;
	return finite;
}

/* The rare batch in which a distance may not fit in 31 bits. */
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

/* The rare batch in which something is not finite. */
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
#define BATCH 4096

struct sums {
	struct f64xl rel;
	struct products products;
};

static void add_batch(struct tsr_measure *m, struct sums *s, const float *x, const float *y,
		      size_t n)
{
	struct counts c;
	uint32_t max_abs, max_ulp, zeros, negative;

	add_products(&s->products, x, y, n);
	add_relative(&s->rel, &c, x, y, n);
	max_abs = (uint32_t)lane_max(&c.max_abs);
	max_ulp = (uint32_t)lane_max(&c.max_ulp);
	zeros = (uint32_t)n - counter_value(&c.nonzero);
	negative = counter_value(&c.negative);
	/* Places 2^31 or more apart: of opposite signs, and one at least 2, which is 2^30, from 0. */
	if (max_abs >= 0x40000000u)
		max_ulp = max_ulp_of(x, y, n);
	if (negative && zeros)
		negative -= count_negative_zeros(x, n);
	m->exact += counter_value(&c.same);
	m->negative += negative;
	m->flushed += counter_value(&c.flushed);
	m->zeros += zeros;
	m->max_ulp = max_ulp > m->max_ulp ? max_ulp : m->max_ulp;
	m->max_abs = tsr_max_magnitude(m->max_abs, tsr_f32_from_bits(max_abs));
	if (!all_finite(&s->products))
		add_nonfinite(m, x, y, n);
}

void TSR_FOR_ISA(measure_add)(struct tsr_measure *m, const float *x, const float *y, size_t n)
{
	const size_t whole = n - n % LANES;
	struct sums s;

	memcpy(&s.rel, m->sum_rel, sizeof(s.rel));
	memcpy(&s.products.xx, m->sum_xx, sizeof(s.products.xx));
	memcpy(&s.products.dd, m->sum_dd, sizeof(s.products.dd));
	memcpy(&s.products.xd, m->sum_xd, sizeof(s.products.xd));
	for (size_t i = 0; i < whole; i += BATCH)
		add_batch(m, &s, x + i, y + i, whole - i < BATCH ? whole - i : BATCH);
	if (n > whole) {
		float x_tail[LANES] = { 0 }, y_tail[LANES] = { 0 };
		const uint64_t padding = LANES - (n - whole);

		memcpy(x_tail, x + whole, (n - whole) * sizeof(*x));
		memcpy(y_tail, y + whole, (n - whole) * sizeof(*y));
		add_batch(m, &s, x_tail, y_tail, LANES);
		m->exact -= padding;
		m->zeros -= padding;
	}
	m->n += n;
	memcpy(m->sum_rel, &s.rel, sizeof(s.rel));
	memcpy(m->sum_xx, &s.products.xx, sizeof(s.products.xx));
	memcpy(m->sum_dd, &s.products.dd, sizeof(s.products.dd));
	memcpy(m->sum_xd, &s.products.xd, sizeof(s.products.xd));
}
