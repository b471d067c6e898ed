/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of replays against plain sums in long double, and by hand. */
#include <float.h>
#include <math.h>

#include "base/isa.h"
#include "replay/compare_fp32.h"
#include "unit.h"

#define N_MAX 5003
#define ALL_KINDS (TSR_KIND_WEIGHT | TSR_KIND_MOMENTUM | TSR_KIND_VARIANCE)

/* The state of both replays.  Room for an odd start. */
static float before[TSR_SLOTS][N_MAX + 8], stepped[TSR_SLOTS][N_MAX + 8];
static float after[TSR_SLOTS][N_MAX + 8], fp32_before[N_MAX + 8];
static float fp32_after[TSR_SLOTS][N_MAX + 8];

static struct tsr_compare_run run_of(size_t first, size_t n)
{
	struct tsr_compare_run run = { .n = n, .fp32_before = fp32_before + first };

	for (unsigned p = 0; p < TSR_SLOTS; p++) {
		run.before[p] = before[p] + first;
		run.stepped[p] = stepped[p] + first;
		run.after[p] = after[p] + first;
		run.fp32_after[p] = fp32_after[p] + first;
	}
	return run;
}

/* Uniform in -1 to 1. */
static float uniform(uint64_t *seed)
{
	return (float)(int32_t)random_u32(seed) * 0x1p-31f;
}

static float noisy(float x, float noise, uint64_t *seed)
{
	return x * (1 + noise * uniform(seed));
}

/* Weights that some updates do not move, momenta, and variances of which some are lost. */
static void fill(uint64_t seed)
{
	for (size_t i = 0; i < N_MAX + 8; i++) {
		const float w = uniform(&seed), u = 0x1p-6f * uniform(&seed);
		const uint32_t r = random_u32(&seed);
		const float m = uniform(&seed), v = 0x1p-20f * fabsf(uniform(&seed)) + 0x1p-40f;

		fp32_before[i] = w;
		before[0][i] = noisy(w, 0x1p-10f, &seed);
		fp32_after[0][i] = w + u;
		stepped[0][i] = r % 9 ? before[0][i] + noisy(u, 0x1p-2f, &seed) : before[0][i];
		after[0][i] = r % 5 ? noisy(stepped[0][i], 0x1p-14f, &seed) : before[0][i];
		fp32_after[1][i] = m;
		stepped[1][i] = noisy(m, 0x1p-5f, &seed);
		after[1][i] = noisy(stepped[1][i], 0x1p-8f, &seed);
		fp32_after[2][i] = v;
		stepped[2][i] = noisy(v, 0x1p-5f, &seed);
		after[2][i] = r % 7 ? noisy(stepped[2][i], 0x1p-8f, &seed) : 0.0f;
	}
}

/* --- One element at a time ---------------------------------------------------------------------- */

struct plain {
	long double dd, xx, xy, yy;
	uint64_t flushed;
	uint32_t ulp;
};

static int64_t position_of(float x)
{
	const int64_t magnitude = bits_of(x) & 0x7fffffff;

	return bits_of(x) >> 31 ? -magnitude : magnitude;
}

static void plain_add(struct plain *p, long double x, long double y)
{
	p->dd += (x - y) * (x - y);
	p->xx += x * x;
	p->xy += x * y;
	p->yy += y * y;
	p->flushed += x != 0 && y == 0;
}

static struct plain plain_of(const float *x, const float *y, size_t n)
{
	struct plain p = { 0 };

	for (size_t i = 0; i < n; i++) {
		const int64_t far = llabs(position_of(x[i]) - position_of(y[i]));

		plain_add(&p, (long double)x[i], (long double)y[i]);
		p.ulp = far > p.ulp ? (uint32_t)far : p.ulp;
	}
	return p;
}

static void expect_near(double got, long double want, double tolerance)
{
	if (!(fabsl((long double)got - want) <= (long double)tolerance * fabsl(want)))
		fail_msg("got %.17g, want %.17Lg", got, want);
}

static void expect_nmse(double got, const struct plain *p)
{
	if (p->xx > 0)
		expect_near(got, p->dd / p->xx, 1e-6);
	else
		assert_true(p->dd > 0 ? isinf(got) : got == 0);
}

static void expect_weights(const double *got, size_t at, size_t n)
{
	const struct plain w = plain_of(fp32_after[0] + at, after[0] + at, n);
	struct plain update = { 0 }, storing = { 0 };
	uint64_t stalled = 0;

	for (size_t i = at; i < at + n; i++) {
		plain_add(&update, (long double)fp32_after[0][i] - (long double)fp32_before[i],
			  (long double)stepped[0][i] - (long double)before[0][i]);
		plain_add(&storing, (long double)stepped[0][i] - (long double)before[0][i],
			  (long double)after[0][i] - (long double)before[0][i]);
		stalled += bits_of(stepped[0][i]) != bits_of(before[0][i]) &&
			   bits_of(after[0][i]) == bits_of(before[0][i]);
	}
	assert_true(got[TSR_FIGURE_WEIGHT_ULP] == (double)w.ulp);
	expect_nmse(got[TSR_FIGURE_WEIGHT_NMSE], &w);
	if (n)
		expect_near(got[TSR_FIGURE_WEIGHT_COSINE], w.xy / sqrtl(w.xx * w.yy), 1e-12);
	expect_nmse(got[TSR_FIGURE_UPDATE_NMSE], &update);
	expect_nmse(got[TSR_FIGURE_UPDATE_QUANT], &storing);
	expect_near(got[TSR_FIGURE_UPDATE_NORM], sqrtl(storing.yy), 1e-6);
	assert_true(got[TSR_FIGURE_STALLED] == (double)stalled);
	assert_true(n < 100 || (stalled > n / 9 && stalled < n / 4));
}

static void expect_states(const double *got, size_t at, size_t n)
{
	struct plain p = plain_of(fp32_after[1] + at, after[1] + at, n);

	expect_nmse(got[TSR_FIGURE_MOMENTUM_NMSE], &p);
	p = plain_of(stepped[1] + at, after[1] + at, n);
	expect_nmse(got[TSR_FIGURE_MOMENTUM_QUANT], &p);
	p = plain_of(fp32_after[2] + at, after[2] + at, n);
	expect_nmse(got[TSR_FIGURE_VARIANCE_NMSE], &p);
	p = plain_of(stepped[2] + at, after[2] + at, n);
	expect_nmse(got[TSR_FIGURE_VARIANCE_QUANT], &p);
	assert_true(got[TSR_FIGURE_VARIANCE_LOST] == (double)p.flushed);
}

/* Every length around those of the loops, at any alignment that an element has. */
static void test_figures_are_those_of_plain_sums(void **state)
{
	static const size_t lengths[] = { 0,	1,    3,    4,	  7,	8,    9,    31,
					  1016, 1023, 1024, 1025, 2047, 2049, 4096, N_MAX };

	(void)state;
	fill(1);
	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		const size_t at = i % 8, n = lengths[i];
		const struct tsr_compare_run run = run_of(at, n);
		struct tsr_compare c = { 0 };
		struct tsr_replay_figures f;

		tsr_compare_add(&c, &run);
		c.underflow = 3;
		f = tsr_compare_figures(&c, ALL_KINDS);
		expect_weights(f.value, at, n);
		expect_states(f.value, at, n);
		assert_true(f.value[TSR_FIGURE_UNDERFLOW] == 3);
	}
}

/* --- Order -------------------------------------------------------------------------------------- */

static void expect_same(const struct tsr_compare *a, const struct tsr_compare *b)
{
	const struct tsr_replay_figures fa = tsr_compare_figures(a, ALL_KINDS);
	const struct tsr_replay_figures fb = tsr_compare_figures(b, ALL_KINDS);

	assert_memory_equal(&fa, &fb, sizeof(fa));
	assert_memory_equal(a->norm, b->norm, sizeof(a->norm));
}

/* A run in pieces that begin at multiples of the lanes gives the bits of the run. */
static void test_pieces_equal_the_whole(void **state)
{
	uint64_t seed = 2;

	(void)state;
	fill(3);
	for (int round = 0; round < 20; round++) {
		const size_t n = random_u32(&seed) % N_MAX;
		const struct tsr_compare_run all = run_of(0, n);
		struct tsr_compare whole = { 0 }, pieces = { 0 };

		tsr_compare_add(&whole, &all);
		for (size_t at = 0, some; at < n; at += some) {
			some = (random_u32(&seed) % 200 + 1) * TSR_MEASURE_LANES;
			some = some < n - at ? some : n - at;
			const struct tsr_compare_run run = run_of(at, some);

			tsr_compare_add(&pieces, &run);
		}
		expect_same(&pieces, &whole);
	}
}

/* Element i of a run adds to lane i mod 8, one after the other. */
static void test_squares_are_added_in_order(void **state)
{
	(void)state;
	fill(7);
	for (size_t n = 0; n <= 1100; n += n < 40 ? 1 : 53) {
		const struct tsr_compare_run run = run_of(3, n);
		double lanes[TSR_MEASURE_LANES] = { 0 };
		struct tsr_compare c = { 0 };

		tsr_compare_add(&c, &run);
		for (size_t i = 0; i < n; i++) {
			const float update = after[0][3 + i] - before[0][3 + i];

			lanes[i % TSR_MEASURE_LANES] += (double)update * (double)update;
		}
		assert_memory_equal(c.norm, lanes, sizeof(lanes));
	}
}

static void test_every_level_gives_the_same_bits(void **state)
{
	const struct tsr_compare_run run = run_of(1, N_MAX);
	struct tsr_compare base = { 0 };

	(void)state;
	fill(4);
	assert_true(tsr_isa_select("base"));
	tsr_compare_add(&base, &run);
	for (const char *const *name = tsr_isa_names(); *name; name++) {
		struct tsr_compare c = { 0 };

		if (!tsr_isa_select(*name))
			continue;
		tsr_compare_add(&c, &run);
		expect_same(&c, &base);
	}
	assert_true(tsr_isa_select(NULL));
}

static void test_merge_adds_up(void **state)
{
	const struct tsr_compare_run one = run_of(0, 1000), two = run_of(1000, 3003);
	const struct tsr_compare none = { 0 };
	struct tsr_compare a = { 0 }, b = { 0 }, merged;
	struct tsr_replay_figures f;

	(void)state;
	fill(5);
	tsr_compare_add(&a, &one);
	tsr_compare_add(&b, &two);
	a.underflow = 5;
	b.underflow = 7;
	merged = a;
	tsr_compare_merge(&merged, &b);
	f = tsr_compare_figures(&merged, ALL_KINDS);
	expect_weights(f.value, 0, 4003);
	expect_states(f.value, 0, 4003);
	assert_true(f.value[TSR_FIGURE_UNDERFLOW] == 12);
	merged = none;
	tsr_compare_merge(&merged, &a);
	tsr_compare_merge(&merged, &none);
	expect_same(&merged, &a);
}

/* --- Edges -------------------------------------------------------------------------------------- */

static struct tsr_replay_figures figures_of(size_t n, unsigned kinds)
{
	const struct tsr_compare_run run = run_of(0, n);
	struct tsr_compare c = { 0 };

	tsr_compare_add(&c, &run);
	return tsr_compare_figures(&c, kinds);
}

static void test_figures_of_parts_that_are_not_kept(void **state)
{
	struct tsr_compare_run run = run_of(0, 100);
	struct tsr_compare c = { 0 };
	struct tsr_replay_figures f;

	(void)state;
	fill(6);
	run.before[2] = run.stepped[2] = run.after[2] = run.fp32_after[2] = NULL;
	tsr_compare_add(&c, &run);
	f = tsr_compare_figures(&c, TSR_KIND_WEIGHT | TSR_KIND_MOMENTUM);
	assert_true(isnan(f.value[TSR_FIGURE_VARIANCE_NMSE]));
	assert_true(isnan(f.value[TSR_FIGURE_VARIANCE_QUANT]));
	assert_true(isnan(f.value[TSR_FIGURE_VARIANCE_LOST]));
	assert_true(f.value[TSR_FIGURE_MOMENTUM_NMSE] > 0);
	assert_true(f.value[TSR_FIGURE_UNDERFLOW] == 0);
	f = tsr_compare_figures(&c, TSR_KIND_WEIGHT);
	assert_true(isnan(f.value[TSR_FIGURE_MOMENTUM_NMSE]));
	assert_true(isnan(f.value[TSR_FIGURE_MOMENTUM_QUANT]));
	assert_true(isnan(f.value[TSR_FIGURE_UNDERFLOW]));
	assert_true(f.value[TSR_FIGURE_UPDATE_NMSE] > 0);
}

static void test_figures_of_nothing(void **state)
{
	const struct tsr_replay_figures f = figures_of(0, ALL_KINDS);

	(void)state;
	for (unsigned i = 0; i < TSR_FIGURE_COUNT; i++)
		assert_true(f.value[i] == (i == TSR_FIGURE_WEIGHT_COSINE ? 1 : 0));
}

static void fill_with(float w0, float w1, float m, float v)
{
	for (size_t i = 0; i < N_MAX; i++) {
		fp32_before[i] = before[0][i] = w0;
		fp32_after[0][i] = stepped[0][i] = after[0][i] = w1;
		fp32_after[1][i] = stepped[1][i] = after[1][i] = m;
		fp32_after[2][i] = stepped[2][i] = after[2][i] = v;
	}
}

static void test_equal_replays_have_no_error(void **state)
{
	static const float values[][4] = {
		{ 0, 0, 0, 0 },
		{ 0.0f, -0.0f, -0.0f, 0 },
		{ 1, 1.5f, -2, 3 },
		{ FLT_TRUE_MIN, 0, FLT_TRUE_MIN, FLT_TRUE_MIN },
		{ -FLT_MAX, -FLT_MAX, FLT_MAX, FLT_MAX },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(values); i++) {
		const float *v = values[i];
		const double move = fabs((double)v[1] - (double)v[0]);
		struct tsr_replay_figures f;

		fill_with(v[0], v[1], v[2], v[3]);
		f = figures_of(100, ALL_KINDS);
		for (unsigned k = 0; k < TSR_FIGURE_COUNT; k++) {
			const enum tsr_figure_name name = (enum tsr_figure_name)k;

			if (name == TSR_FIGURE_UPDATE_NORM)
				expect_near(f.value[k], 10 * (long double)move, 1e-15);
			else
				assert_true(tsr_figure_error(&f, name) == 0);
		}
	}
}

/* A weight that stays where FP32 arithmetic, too, leaves it is not stalled; nor is -0 from +0. */
static void test_what_is_stalled(void **state)
{
	static const struct {
		float before, stepped, after;
		bool stalled;
	} rows[] = {
		{ 1, 1.25f, 1.25f, false }, { 1, 1.25f, 1, true },    { 1, 1, 1, false },
		{ 1, 1, 1.25f, false },	    { 1, 1.25f, 2, false },   { 0.0f, -0.0f, 0.0f, false },
		{ -0.0f, 1, 0.0f, true },   { 1, NAN, NAN, false },   { 1, NAN, 1, true },
		{ NAN, NAN, NAN, false },   { 1, INFINITY, 1, true }, { INFINITY, 1, 1, false },
	};

	(void)state;
	for (size_t at = 0; at < 9; at++) {
		for (size_t i = 0; i < COUNT_OF(rows); i++) {
			fill_with(1, 1, 1, 1);
			before[0][at] = rows[i].before;
			stepped[0][at] = rows[i].stepped;
			after[0][at] = rows[i].after;
			assert_true(figures_of(9, ALL_KINDS).value[TSR_FIGURE_STALLED] ==
				    rows[i].stalled);
		}
	}
}

static void test_zeros_that_should_not_be(void **state)
{
	struct tsr_replay_figures f;

	(void)state;
	fill_with(1, 1, 0, 0);
	after[1][5] = 1;
	stepped[2][3] = FLT_TRUE_MIN;
	stepped[0][7] = after[0][7] = 2;
	f = figures_of(9, ALL_KINDS);
	assert_true(isinf(f.value[TSR_FIGURE_MOMENTUM_NMSE]));
	assert_true(isinf(f.value[TSR_FIGURE_UPDATE_NMSE])); /* FP32 did not move a weight */
	assert_true(f.value[TSR_FIGURE_VARIANCE_LOST] == 1);
	assert_true(f.value[TSR_FIGURE_VARIANCE_NMSE] == 0);
	expect_near(f.value[TSR_FIGURE_VARIANCE_QUANT], 1, 1e-15);
	expect_near(f.value[TSR_FIGURE_UPDATE_NORM], 1, 1e-15);
}

/* Never NaN, which would say that there is no such state, and never small. */
static void test_what_is_not_finite(void **state)
{
	static const float bad[] = { NAN, INFINITY, -INFINITY };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		for (unsigned both = 0; both < 2; both++) {
			struct tsr_replay_figures f;

			fill_with(1, 1.5f, 1, 1);
			for (unsigned p = 0; p < TSR_SLOTS; p++) {
				after[p][2] = stepped[p][2] = bad[i];
				if (both)
					fp32_after[p][2] = bad[i];
			}
			f = figures_of(8, ALL_KINDS);
			for (unsigned k = 0; k < TSR_FIGURE_COUNT; k++)
				assert_true(f.value[k] >= 0);
			assert_true(isinf(f.value[TSR_FIGURE_WEIGHT_NMSE]));
			assert_true(isinf(f.value[TSR_FIGURE_MOMENTUM_NMSE]));
			assert_true(isinf(f.value[TSR_FIGURE_VARIANCE_NMSE]));
			assert_true(isinf(f.value[TSR_FIGURE_UPDATE_NMSE]));
			assert_true(isinf(f.value[TSR_FIGURE_UPDATE_NORM]));
			assert_true(f.value[TSR_FIGURE_WEIGHT_COSINE] == 0);
			assert_true(tsr_figure_error(&f, TSR_FIGURE_WEIGHT_COSINE) == 1);
		}
	}
}

/* --- Names -------------------------------------------------------------------------------------- */

static void test_names_are_found(void **state)
{
	enum tsr_figure_name found;

	(void)state;
	for (unsigned i = 0; i < TSR_FIGURE_COUNT; i++) {
		const char *name = tsr_figure_name((enum tsr_figure_name)i);

		assert_true(name && *name);
		assert_true(tsr_figure_find(name, &found));
		assert_int_equal(found, i);
	}
	assert_true(tsr_figure_find("update-nmse", &found));
	assert_int_equal(found, TSR_FIGURE_UPDATE_NMSE);
	assert_false(tsr_figure_find("update", &found));
	assert_false(tsr_figure_find("", &found));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_figures_are_those_of_plain_sums),
		cmocka_unit_test(test_pieces_equal_the_whole),
		cmocka_unit_test(test_squares_are_added_in_order),
		cmocka_unit_test(test_every_level_gives_the_same_bits),
		cmocka_unit_test(test_merge_adds_up),
		cmocka_unit_test(test_figures_of_parts_that_are_not_kept),
		cmocka_unit_test(test_figures_of_nothing),
		cmocka_unit_test(test_equal_replays_have_no_error),
		cmocka_unit_test(test_what_is_stalled),
		cmocka_unit_test(test_zeros_that_should_not_be),
		cmocka_unit_test(test_what_is_not_finite),
		cmocka_unit_test(test_names_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
