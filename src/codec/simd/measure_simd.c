/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of tsr_measure_add(). */
#include <float.h>
#include <string.h>

#include "codec/loops.h"
#include "codec/measuring.h"
#include "codec/simd/measure_lanes.h"
#include "codec/sweep_math.h"

/* As not_zero(): gcc 12 makes scalar code of ==. */
INLINE i32xl equal(const i32xl *a, const i32xl *b)
{
#ifdef __AVX2__
	return *a == *b;
#else
	const i32xl different = *a ^ *b;

	return ~((different | (i32xl) - (u32xl)different) >> 31);
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
		const uint32_t ulp = tsr_sweep_ulp(tsr_bits_from_f32(x[i]),
						   tsr_bits_from_f32(y[i]));

		max_ulp = ulp > max_ulp ? ulp : max_ulp;
	}
	return max_ulp;
}

/* -0, which is not negative; *lost_ret: how many of them are +0 in y. */
static uint32_t count_negative_zeros(const float *x, const float *y, size_t n, uint32_t *lost_ret)
{
	uint32_t count = 0, lost = 0;

	for (size_t i = 0; i < n; i++) {
		const bool is = tsr_bits_from_f32(x[i]) == TSR_F32_SIGN;

		count += is;
		lost += is && tsr_bits_from_f32(y[i]) == 0;
	}
	*lost_ret = lost;
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
	uint32_t max_abs, max_ulp, zeros, negative, sign_lost = 0;

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
		negative -= count_negative_zeros(x, y, n, &sign_lost);
	m->exact += counter_value(&c.same);
	m->negative += negative;
	m->flushed += counter_value(&c.flushed);
	m->sign_lost += sign_lost;
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
