/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_measure_add() against one plain loop, and the metrics against long double and by hand. */
#include <float.h>
#include <math.h>

#include "base/isa.h"
#include "codec/measuring.h"
#include "tersor/codec.h"
#include "tersor/measure.h"
#include "unit.h"

/* --- One element at a time ------------------------------------------------------------------ */

/* A float as an integer in the order of the values, both zeros being 0. */
static int64_t position_of(float x)
{
	const int64_t mag = bits_of(x) & 0x7fffffff;

	return bits_of(x) >> 31 ? -mag : mag;
}

/* One rounding even so, for - and / of two floats in binary64: 53 bits are more than 2 * 24 + 2. */
static float rn(double x)
{
	return (float)x;
}

static void plain_add(struct tsr_measure *m, const float *x, const float *y, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const double xd = (double)x[i], d = (double)rn(xd - (double)y[i]);
		const int64_t distance = position_of(x[i]) - position_of(y[i]);
		const uint32_t ulp = (uint32_t)(distance < 0 ? -distance : distance);
		const bool finite = is_finite_bits(bits_of(x[i]));
		const size_t lane = i % TSR_MEASURE_LANES;

		m->n++;
		m->exact += bits_of(x[i]) == bits_of(y[i]);
		m->nonfinite += !finite;
		m->negative += bits_of(x[i]) >> 31 && xd != 0;
		m->overflow += finite && !is_finite_bits(bits_of(y[i]));
		m->flushed += xd != 0 && (double)y[i] == 0;
		m->zeros += xd == 0;
		m->sign_lost += bits_of(x[i]) == 0x80000000 && bits_of(y[i]) == 0;
		m->max_ulp = ulp > m->max_ulp ? ulp : m->max_ulp;
		m->max_abs = fabs(d) > (double)m->max_abs ? rn(fabs(d)) : m->max_abs;
		m->sum_rel[lane] += xd != 0 ? (double)rn(fabs(d) / fabs(xd)) : 0;
		m->sum_xx[lane] += xd * xd;
		m->sum_dd[lane] += d * d;
		m->sum_xd[lane] += xd * d;
	}
}

static void expect_same_counts(const struct tsr_measure *got, const struct tsr_measure *want)
{
	assert_true(got->n == want->n);
	assert_true(got->exact == want->exact);
	assert_true(got->nonfinite == want->nonfinite);
	assert_true(got->negative == want->negative);
	assert_true(got->overflow == want->overflow);
	assert_true(got->flushed == want->flushed);
	assert_true(got->sign_lost == want->sign_lost);
	assert_true(got->zeros == want->zeros);
	assert_int_equal(got->max_ulp, want->max_ulp);
}

static void expect_same_sums(const struct tsr_measure *got, const struct tsr_measure *want)
{
	assert_true(got->max_abs == want->max_abs);
	assert_memory_equal(got->sum_rel, want->sum_rel, sizeof(got->sum_rel));
	assert_memory_equal(got->sum_xx, want->sum_xx, sizeof(got->sum_xx));
	assert_memory_equal(got->sum_dd, want->sum_dd, sizeof(got->sum_dd));
	assert_memory_equal(got->sum_xd, want->sum_xd, sizeof(got->sum_xd));
}

/* --- Data ----------------------------------------------------------------------------------- */

#define N_MAX 20011

static float x_data[N_MAX + 8], y_data[N_MAX + 8];

/* Values and what a codec might make of them: near, flushed, of the other sign, the same. */
static void fill_finite(uint64_t seed)
{
	for (size_t i = 0; i < COUNT_OF(x_data); i++) {
		const uint32_t bits = random_u32(&seed) &
				      (random_u32(&seed) % 5 ? 0xbfffffffu : 0x80ffffffu);
		const uint32_t r = random_u32(&seed);

		x_data[i] = float_of(r % 11 ? bits : bits & 0x80000000u);
		y_data[i] = r % 7 == 0	 ? float_of((r & 1) << 31)
			    : r % 7 == 1 ? x_data[i]
			    : r % 7 == 2 ? float_of(bits ^ 0x80000000u)
					 : float_of(bits_of(x_data[i]) ^
						    (random_u32(&seed) & 0x80001fff));
	}
}

static void fill_special(uint64_t seed)
{
	static const uint32_t specials[] = {
		0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x7f7fffff, 0xff7fffff, 0x7f800000,
		0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xffffffff, 0x3f800000, 0x00800000,
	};

	for (size_t i = 0; i < COUNT_OF(x_data); i++) {
		const uint32_t r = random_u32(&seed);

		x_data[i] = float_of(r & 1 ? specials[(r >> 8) % COUNT_OF(specials)]
					   : random_u32(&seed));
		y_data[i] = float_of(r & 2 ? specials[(r >> 16) % COUNT_OF(specials)]
					   : random_u32(&seed));
	}
}

/* Selects each level of this processor in turn, and the best one at the end. */
static void on_each_level(void (*check)(void))
{
	for (const char *const *name = tsr_isa_names(); *name; name++) {
		if (tsr_isa_select(*name))
			check();
	}
	assert_true(tsr_isa_select(NULL));
}

/* --- Adding --------------------------------------------------------------------------------- */

static void check_against_plain(void)
{
	static const size_t long_runs[] = { 4095, 4096, 4097, 8192, N_MAX };

	fill_finite(3);
	for (size_t i = 0; i < 101 + COUNT_OF(long_runs); i++) {
		const size_t n = i <= 100 ? i : long_runs[i - 101];
		const size_t shift = i % 8; /* any alignment that an element has */
		struct tsr_measure got = { 0 }, want = { 0 };

		tsr_measure_add(&got, x_data + shift, y_data + shift, n);
		plain_add(&want, x_data + shift, y_data + shift, n);
		expect_same_counts(&got, &want);
		expect_same_sums(&got, &want);
	}
}

static void test_every_level_is_the_plain_loop(void **state)
{
	(void)state;
	on_each_level(check_against_plain);
}

static void check_special_counts(void)
{
	fill_special(4);
	for (size_t n = 0; n <= 200; n++) {
		struct tsr_measure got = { 0 }, want = { 0 };

		tsr_measure_add(&got, x_data + n % 8, y_data + n % 8, n);
		plain_add(&want, x_data + n % 8, y_data + n % 8, n);
		expect_same_counts(&got, &want);
	}
}

static void test_counts_of_special_values(void **state)
{
	(void)state;
	on_each_level(check_special_counts);
}

/* Sums may be NaN then, but the same on every level. */
static void test_levels_agree_on_special_values(void **state)
{
	struct tsr_measure base = { 0 };

	(void)state;
	fill_special(5);
	assert_true(tsr_isa_select("base"));
	tsr_measure_add(&base, x_data, y_data, 203);
	for (const char *const *name = tsr_isa_names(); *name; name++) {
		struct tsr_measure m = { 0 };

		if (!tsr_isa_select(*name))
			continue;
		tsr_measure_add(&m, x_data, y_data, 203);
		expect_same_counts(&m, &base);
		assert_memory_equal(&m.max_abs, &base.max_abs, sizeof(m.max_abs));
		for (unsigned i = 0; i < TSR_METRIC_COUNT; i++) {
			const double got = tsr_measure_value(&m, (enum tsr_metric)i);
			const double want = tsr_measure_value(&base, (enum tsr_metric)i);

			assert_true(got == want || (isnan(got) && isnan(want)));
		}
	}
	assert_true(tsr_isa_select(NULL));
}

static void check_pieces(void)
{
	uint64_t seed = 6;

	fill_finite(7);
	for (int round = 0; round < 50; round++) {
		const size_t n = random_u32(&seed) % N_MAX;
		struct tsr_measure whole = { 0 }, pieces = { 0 }, plain = { 0 };
		size_t at = 0;

		tsr_measure_add(&whole, x_data, y_data, n);
		while (at < n) {
			const size_t some = (random_u32(&seed) % 3000 + 1) * TSR_MEASURE_LANES;
			const size_t run = some < n - at ? some : n - at;

			tsr_measure_add(&pieces, x_data + at, y_data + at, run);
			at += run;
		}
		expect_same_counts(&pieces, &whole);
		expect_same_sums(&pieces, &whole);
		/* Runs of any length: element i of each goes to lane i mod 8. */
		pieces = (struct tsr_measure){ 0 };
		for (at = 0; at < n;) {
			const size_t some = random_u32(&seed) % 1000 + 1;
			const size_t run = some < n - at ? some : n - at;

			tsr_measure_add(&pieces, x_data + at, y_data + at, run);
			plain_add(&plain, x_data + at, y_data + at, run);
			at += run;
		}
		expect_same_counts(&pieces, &whole);
		expect_same_sums(&pieces, &plain);
	}
}

static void test_pieces_equal_the_whole(void **state)
{
	(void)state;
	on_each_level(check_pieces);
}

static void test_an_array_against_itself_is_exact(void **state)
{
	struct tsr_measure m = { 0 };

	(void)state;
	fill_finite(8);
	tsr_measure_add(&m, x_data, x_data, N_MAX);
	assert_true(m.exact == N_MAX && m.n == N_MAX);
	for (unsigned i = 0; i < TSR_METRIC_COUNT; i++) {
		assert_true(tsr_measure_value(&m, (enum tsr_metric)i) ==
			    (i == TSR_METRIC_COSINE ? 1 : 0));
		assert_true(tsr_measure_error(&m, (enum tsr_metric)i) == 0);
	}
}

static void test_merge_adds_up(void **state)
{
	struct tsr_measure a = { 0 }, b = { 0 }, both, whole = { 0 };
	const struct tsr_measure none = { 0 };

	(void)state;
	fill_finite(9);
	tsr_measure_add(&a, x_data, y_data, 8000);
	tsr_measure_add(&b, x_data + 8000, y_data + 8000, 777);
	tsr_measure_add(&whole, x_data, y_data, 8777);
	both = a;
	tsr_measure_merge(&both, &b);
	expect_same_counts(&both, &whole);
	assert_true(both.max_abs == whole.max_abs);
	for (int i = 0; i < TSR_MEASURE_LANES; i++) {
		assert_true(both.sum_rel[i] == a.sum_rel[i] + b.sum_rel[i]);
		assert_true(both.sum_xx[i] == a.sum_xx[i] + b.sum_xx[i]);
		assert_true(both.sum_dd[i] == a.sum_dd[i] + b.sum_dd[i]);
		assert_true(both.sum_xd[i] == a.sum_xd[i] + b.sum_xd[i]);
	}
	both = a;
	tsr_measure_merge(&both, &none);
	assert_memory_equal(&both, &a, sizeof(a));
	both = none;
	tsr_measure_merge(&both, &a);
	assert_memory_equal(&both, &a, sizeof(a));
}

/* --- Metrics -------------------------------------------------------------------------------- */

static struct tsr_measure measure_of(const float *x, const float *y, size_t n)
{
	struct tsr_measure m = { 0 };

	tsr_measure_add(&m, x, y, n);
	return m;
}

static void expect_near(double got, long double want, double tolerance)
{
	if (!(fabsl((long double)got - want) <= (long double)tolerance * fabsl(want)))
		fail_msg("got %.17g, want %.17Lg", got, want);
}

/* Weights and a little noise, in long double from the values themselves. */
static void test_metrics_against_long_double(void **state)
{
	static const float noises[] = { 0x1p-4f, 0x1p-9f, 0x1p-18f, 0x1p-23f };
	uint64_t seed = 10;

	(void)state;
	for (size_t j = 0; j < COUNT_OF(noises); j++) {
		long double xx = 0, dd = 0, rel = 0, square = 0, max_abs = 0, xy = 0, yy = 0;
		struct tsr_measure m;

		for (size_t i = 0; i < N_MAX; i++) {
			const int32_t a = (int32_t)random_u32(&seed),
				      b = (int32_t)random_u32(&seed);

			x_data[i] = rn((double)(a | 1) * 0x1p-36);
			y_data[i] = rn((double)x_data[i] *
				       (1 + (double)b * 0x1p-31 * (double)noises[j]));
		}
		m = measure_of(x_data, y_data, N_MAX);
		for (size_t i = 0; i < N_MAX; i++) {
			const long double x = (long double)x_data[i], y = (long double)y_data[i];

			xx += x * x;
			yy += y * y;
			xy += x * y;
			dd += (x - y) * (x - y);
			rel += fabsl(x - y) / fabsl(x);
			max_abs = fmaxl(max_abs, fabsl(x - y));
		}
		/* sin^2 from the part of y that is across x; 1 - cos = sin^2 / (1 + cos). */
		for (size_t i = 0; i < N_MAX; i++) {
			const long double across = (long double)y_data[i] -
						   xy / xx * (long double)x_data[i];

			square += across * across;
		}
		expect_near(tsr_measure_value(&m, TSR_METRIC_MAX_ABS), max_abs, 1e-6);
		expect_near(tsr_measure_value(&m, TSR_METRIC_MEAN_REL), rel / N_MAX, 1e-6);
		expect_near(tsr_measure_value(&m, TSR_METRIC_NMSE), dd / xx, 1e-6);
		expect_near(tsr_measure_error(&m, TSR_METRIC_COSINE),
			    square / yy / (1 + xy / sqrtl(xx * yy)), 1e-6);
		expect_near(tsr_measure_value(&m, TSR_METRIC_COSINE), xy / sqrtl(xx * yy), 1e-12);
	}
}

/* x = (1, 1) and y = (1 + e, 1 - e): the tangent of the angle is e. */
static void test_cosine_of_tiny_errors(void **state)
{
	(void)state;
	for (int k = 1; k <= 23; k++) {
		const float e = ldexpf(1.0f, -k);
		const float x[2] = { 1, 1 }, y[2] = { 1 + e, 1 - e };
		const struct tsr_measure m = measure_of(x, y, 2);
		const long double cosine = 1 / sqrtl(1 + (long double)e * (long double)e);
		const long double want = (long double)e * (long double)e /
					 (1 + (long double)e * (long double)e) / (1 + cosine);

		expect_near(tsr_measure_error(&m, TSR_METRIC_COSINE), want, 1e-12);
		assert_true(tsr_measure_error(&m, TSR_METRIC_COSINE) > 0);
	}
}

static void test_cosine_by_hand(void **state)
{
	static const struct {
		float x[2], y[2];
		double error;
	} rows[] = {
		{ { 1, 2 }, { 1, 2 }, 0 },
		{ { 1, 2 }, { 2, 4 }, 0 }, /* longer only */
		{ { 1, 2 }, { 0.5f, 1 }, 0 },
		{ { 3, 0 }, { 0, 5 }, 1 }, /* a right angle */
		{ { 1, 2 }, { -1, -2 }, 2 }, /* backwards */
		{ { 1, 2 }, { 0, 0 }, 1 },
		{ { 0, 0 }, { 1, 2 }, 1 },
		{ { 0, 0 }, { -0.0f, 0 }, 0 },
		{ { 0x1p-149f, 0 }, { 0x1p-149f, 0x1p-149f }, 1 - M_SQRT1_2 },
		{ { FLT_MAX, 0 }, { FLT_MAX, FLT_MAX }, 1 - M_SQRT1_2 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct tsr_measure m = measure_of(rows[i].x, rows[i].y, 2);
		const double error = tsr_measure_error(&m, TSR_METRIC_COSINE);

		if (!(fabs(error - rows[i].error) <= 1e-15))
			fail_msg("row %zu: got %g, want %g", i, error, rows[i].error);
		assert_true(tsr_measure_value(&m, TSR_METRIC_COSINE) == 1 - error);
	}
}

static void test_metrics_of_nothing(void **state)
{
	const struct tsr_measure m = { 0 };

	(void)state;
	for (unsigned i = 0; i < TSR_METRIC_COUNT; i++) {
		assert_true(tsr_measure_error(&m, (enum tsr_metric)i) == 0);
		assert_true(tsr_measure_value(&m, (enum tsr_metric)i) ==
			    (i == TSR_METRIC_COSINE ? 1 : 0));
	}
}

static void test_metrics_of_zeros(void **state)
{
	static const float zeros[3] = { 0.0f, -0.0f, 0.0f }, others[3] = { -0.0f, 0.0f, 0.0f };
	static const float ones[3] = { 0.0f, 0.0f, -1.0f };
	struct tsr_measure m = measure_of(zeros, others, 3);

	(void)state;
	assert_true(m.zeros == 3 && m.exact == 1 && m.negative == 0 && m.flushed == 0);
	for (unsigned i = 0; i < TSR_METRIC_COUNT; i++)
		assert_true(tsr_measure_error(&m, (enum tsr_metric)i) == 0);
	m = measure_of(zeros, ones, 3);
	assert_true(tsr_measure_value(&m, TSR_METRIC_MAX_ABS) == 1);
	assert_true(tsr_measure_value(&m, TSR_METRIC_MAX_ULP) == 0x3f800000);
	assert_true(tsr_measure_value(&m, TSR_METRIC_MEAN_REL) == 0);
	assert_true(isinf(tsr_measure_value(&m, TSR_METRIC_NMSE)));
	assert_true(tsr_measure_value(&m, TSR_METRIC_COSINE) == 0);
	assert_true(tsr_measure_error(&m, TSR_METRIC_COSINE) == 1);
}

/* Only nonzero x count in the mean. */
static void test_mean_relative_skips_zeros(void **state)
{
	static const float x[4] = { 0, 2, 0, -4 }, y[4] = { 1, 1, 0, -4 };
	const struct tsr_measure m = measure_of(x, y, 4);

	(void)state;
	assert_true(tsr_measure_value(&m, TSR_METRIC_MEAN_REL) == 0.25);
	assert_true(m.zeros == 2 && m.negative == 1 && m.flushed == 0);
}

static void test_ulp_distance(void **state)
{
	static const struct {
		uint32_t x, y, distance;
	} rows[] = {
		{ 0x3f800000, 0x3f800000, 0 },		{ 0x3f800000, 0x3f7fffff, 1 },
		{ 0x00000000, 0x80000000, 0 },		{ 0x80000000, 0x00000001, 1 },
		{ 0x00000001, 0x80000001, 2 },		{ 0x80000003, 0x00000004, 7 },
		{ 0x3f800000, 0xbf800000, 0x7f000000 }, { 0x7f7fffff, 0xff7fffff, 0xfefffffe },
		{ 0xff7fffff, 0x7f7fffff, 0xfefffffe }, { 0x7f7fffff, 0x7f800000, 1 },
		{ 0xff800000, 0x7f800000, 0xff000000 }, { 0x7fffffff, 0xffffffff, 0xfffffffe },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		/* In each of the lanes, one of them in the tail. */
		for (size_t at = 0; at < 9; at++) {
			float x[9] = { 0 }, y[9] = { 0 };
			struct tsr_measure m;

			x[at] = float_of(rows[i].x);
			y[at] = float_of(rows[i].y);
			m = measure_of(x, y, 9);
			assert_int_equal(m.max_ulp, rows[i].distance);
			assert_true(tsr_measure_error(&m, TSR_METRIC_MAX_ULP) == rows[i].distance);
			assert_true(m.exact == 8u + (rows[i].x == rows[i].y));
		}
	}
}

static void test_counts_by_hand(void **state)
{
	static const float x[] = { 1,	     -1,	0x1p-149f, -0x1p-149f, FLT_MAX,
				   INFINITY, -INFINITY, NAN,	   -0.0f };
	static const float y[] = { 1, -2, 0, -0.0f, INFINITY, INFINITY, 0, NAN, 1 };
	const struct tsr_measure m = measure_of(x, y, COUNT_OF(x));

	(void)state;
	assert_true(m.n == 9);
	assert_true(m.exact == 3); /* 1, infinity and NaN */
	assert_true(m.nonfinite == 3);
	assert_true(m.negative == 3); /* -1, a subnormal, -infinity */
	assert_true(m.overflow == 1);
	assert_true(m.flushed == 3); /* two subnormals and -infinity */
	assert_true(m.zeros == 1);
}

/*
 * A difference that is not a number is no small one, and must not cover up another: no metric may
 * seem to be within a bound.  The two are in one lane here.
 */
static void check_nan_hides_nothing(void)
{
	static const uint32_t nans[] = { 0x7fc00000, 0xffc00000, 0x7f800001 };

	for (size_t i = 0; i < COUNT_OF(nans); i++) {
		for (size_t at = 0; at < 16; at++) {
			float x[16] = { 0 }, y[16] = { 0 };
			struct tsr_measure m;

			x[at] = float_of(nans[i]);
			x[(at + TSR_MEASURE_LANES) % 16] = 5.0f;
			m = measure_of(x, y, 16);
			assert_true(m.nonfinite == 1);
			for (unsigned j = 0; j < TSR_METRIC_COUNT; j++) {
				if (tsr_measure_error(&m, (enum tsr_metric)j) <= 0.4)
					fail_msg("%s on %s: %g",
						 tsr_metric_name((enum tsr_metric)j),
						 tsr_isa_name(),
						 tsr_measure_error(&m, (enum tsr_metric)j));
			}
		}
	}
}

static void test_nan_hides_nothing(void **state)
{
	(void)state;
	on_each_level(check_nan_hides_nothing);
}

static void expect_same(double a, double b)
{
	if (!(a == b || (isnan(a) && isnan(b))))
		fail_msg("%.17g is not %.17g", a, b);
}

static void check_result(const struct tsr_measure *m)
{
	const struct tsr_measured r = tsr_measure_result(m);

	assert_int_equal(r.n, m->n);
	assert_int_equal(r.exact, m->exact);
	assert_int_equal(r.nonfinite, m->nonfinite);
	assert_int_equal(r.negative, m->negative);
	assert_int_equal(r.overflow, m->overflow);
	assert_int_equal(r.flushed, m->flushed);
	assert_int_equal(r.sign_lost, m->sign_lost);
	for (unsigned i = 0; i <= TSR_METRIC_COSINE; i++) {
		const enum tsr_metric metric = (enum tsr_metric)i;

		expect_same(tsr_measured_value(&r, metric), tsr_measure_value(m, metric));
		expect_same(tsr_measured_error(&r, metric), tsr_measure_error(m, metric));
	}
}

/* What is kept of a measurement says what the measurement does, by every metric and count. */
static void test_results_are_those_of_the_measurement(void **state)
{
	static const float x[] = { 1, -2, 3, 0x1p-140f, -0x1p-149f, INFINITY, 4 };
	static const float y[] = { 1, -2.5f, 3.25f, 0, 0, INFINITY, INFINITY };
	const struct tsr_measure nothing = { 0 };

	(void)state;
	for (size_t n = 1; n <= COUNT_OF(x); n++) {
		const struct tsr_measure m = measure_of(x, y, n);

		check_result(&m);
	}
	check_result(&nothing);
}

static void test_names_of_metrics(void **state)
{
	static const char *const names[] = { "abs", "ulp", "rel", "nmse", "cosine" };
	enum tsr_metric metric;

	(void)state;
	assert_int_equal(COUNT_OF(names), TSR_METRIC_COUNT);
	for (unsigned i = 0; i < TSR_METRIC_COUNT; i++) {
		assert_string_equal(tsr_metric_name((enum tsr_metric)i), names[i]);
		assert_true(tsr_metric_find(names[i], &metric));
		assert_int_equal(metric, i);
	}
	assert_false(tsr_metric_find("", &metric));
	assert_false(tsr_metric_find("ABS", &metric));
	assert_false(tsr_metric_find("nmse ", &metric));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_level_is_the_plain_loop),
		cmocka_unit_test(test_counts_of_special_values),
		cmocka_unit_test(test_levels_agree_on_special_values),
		cmocka_unit_test(test_pieces_equal_the_whole),
		cmocka_unit_test(test_an_array_against_itself_is_exact),
		cmocka_unit_test(test_merge_adds_up),
		cmocka_unit_test(test_metrics_against_long_double),
		cmocka_unit_test(test_cosine_of_tiny_errors),
		cmocka_unit_test(test_cosine_by_hand),
		cmocka_unit_test(test_metrics_of_nothing),
		cmocka_unit_test(test_metrics_of_zeros),
		cmocka_unit_test(test_mean_relative_skips_zeros),
		cmocka_unit_test(test_ulp_distance),
		cmocka_unit_test(test_counts_by_hand),
		cmocka_unit_test(test_nan_hides_nothing),
		cmocka_unit_test(test_results_are_those_of_the_measurement),
		cmocka_unit_test(test_names_of_metrics),
	};

	return cmocka_run_group_tests_name("measure", tests, NULL, NULL);
}
