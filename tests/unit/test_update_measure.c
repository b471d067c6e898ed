/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_update_measure_add() against one plain loop, long double and cases by hand. */
#include <float.h>
#include <math.h>

#include "base/isa.h"
#include "tersor/measure.h"
#include "unit.h"

#define N_MAX 9001

static float m_data[N_MAX + 8], v_data[N_MAX + 8], m_after[N_MAX + 8], v_after[N_MAX + 8];

/* One rounding even so, for +, / and a root in binary64: 53 bits are more than 2 * 24 + 2. */
static float update_of(float m, float v, float eps)
{
	const float root = (float)sqrt((double)v);
	const float divisor = (float)((double)root + (double)eps);

	return (float)((double)m / (double)divisor);
}

static void plain_add(struct tsr_update_measure *to, size_t first, size_t n, float eps)
{
	for (size_t i = 0; i < n; i++) {
		const size_t at = first + i, lane = i % TSR_MEASURE_LANES;
		const float u = update_of(m_data[at], v_data[at], eps);
		const float w = update_of(m_after[at], v_after[at], eps);
		const float change = (v_data[at] - v_after[at]) * 0x1p-10f;
		const float t = update_of(m_data[at], v_after[at] + change, eps);
		const bool u_finite = is_finite_bits(bits_of(u)),
			   w_finite = is_finite_bits(bits_of(w)) && is_finite_bits(bits_of(t));

		to->n++;
		to->nonfinite += !u_finite;
		to->overflow += u_finite && !w_finite;
		to->exposed += !(v_data[at] == 0) && v_after[at] == 0 && !(m_after[at] == 0);
		if (!u_finite || !w_finite)
			continue;
		to->max_before = fmaxf(to->max_before, fabsf(u));
		to->max_after = fmaxf(to->max_after, fabsf(w));
		to->sum_uu[lane] += (double)u * (double)u;
		to->sum_dd[lane] += (double)(u - w) * (double)(u - w);
		to->sum_tt[lane] += (double)(u - t) * (double)(u - t);
	}
}

static void add(struct tsr_update_measure *to, size_t first, size_t n, float eps)
{
	const struct tsr_moments before = { m_data + first, v_data + first };
	const struct tsr_moments after = { m_after + first, v_after + first };

	tsr_update_measure_add(to, &before, &after, n, eps);
}

static void expect_same(const struct tsr_update_measure *got, const struct tsr_update_measure *want)
{
	assert_true(got->n == want->n && got->nonfinite == want->nonfinite);
	assert_true(got->overflow == want->overflow && got->exposed == want->exposed);
	assert_true(got->max_before == want->max_before && got->max_after == want->max_after);
	assert_memory_equal(got->sum_uu, want->sum_uu, sizeof(got->sum_uu));
	assert_memory_equal(got->sum_dd, want->sum_dd, sizeof(got->sum_dd));
	assert_memory_equal(got->sum_tt, want->sum_tt, sizeof(got->sum_tt));
}

/* Moments of every size, some of them lost; with @special also values that no optimizer has. */
static void fill(uint64_t seed, bool special)
{
	static const uint32_t specials[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0xbf800000,
					     0x80000000, 0x00000001, 0x7f7fffff };

	for (size_t i = 0; i < COUNT_OF(m_data); i++) {
		const uint32_t r = random_u32(&seed), bits = random_u32(&seed);

		v_data[i] = float_of(0x20000000 + bits % 0x20000000);
		m_data[i] = sqrtf(v_data[i]) * ((float)(r % 2001) - 1000) / 1000;
		v_after[i] = r % 13 == 0 ? 0.0f : float_of(bits_of(v_data[i]) ^ (r & 0xffff));
		m_after[i] = r % 17 == 0 ? 0.0f : float_of(bits_of(m_data[i]) ^ (r >> 8 & 0xffff));
		if (r % 19 == 0)
			v_data[i] = m_data[i] = 0;
		if (special && r % 5 == 0)
			*(float *[]){
				&m_data[i], &v_data[i], &m_after[i], &v_after[i]
			}[bits % 4] = float_of(specials[(bits >> 8) % COUNT_OF(specials)]);
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

static void check_against_plain(void)
{
	static const size_t long_runs[] = { 4095, 4096, 4097, 8192, N_MAX };

	for (unsigned special = 0; special < 2; special++) {
		fill(2 + special, special);
		for (size_t i = 0; i < 40 + COUNT_OF(long_runs); i++) {
			const size_t n = i < 40 ? i : long_runs[i - 40];
			struct tsr_update_measure got = { 0 }, want = { 0 };

			add(&got, i % 8, n, TSR_UPDATE_EPS);
			plain_add(&want, i % 8, n, TSR_UPDATE_EPS);
			expect_same(&got, &want);
		}
	}
}

static void test_every_level_is_the_plain_loop(void **state)
{
	(void)state;
	on_each_level(check_against_plain);
}

static void test_pieces_and_merged_parts(void **state)
{
	struct tsr_update_measure whole = { 0 }, pieces = { 0 }, a = { 0 }, b = { 0 };

	(void)state;
	fill(4, true);
	add(&whole, 0, N_MAX, 1e-6f);
	add(&pieces, 0, 4000, 1e-6f);
	add(&pieces, 4000, N_MAX - 4000, 1e-6f);
	expect_same(&pieces, &whole);
	add(&a, 0, 4000, 1e-6f);
	add(&b, 4000, N_MAX - 4000, 1e-6f);
	tsr_update_measure_merge(&a, &b);
	assert_true(a.n == whole.n && a.nonfinite == whole.nonfinite);
	assert_true(a.overflow == whole.overflow && a.exposed == whole.exposed);
	assert_true(a.max_before == whole.max_before && a.max_after == whole.max_after);
}

static void test_nmse_against_long_double(void **state)
{
	struct tsr_update_measure got = { 0 };
	long double uu = 0, dd = 0, tt = 0;

	(void)state;
	fill(5, false);
	add(&got, 0, N_MAX, TSR_UPDATE_EPS);
	for (size_t i = 0; i < N_MAX; i++) {
		const long double u = (long double)m_data[i] /
				      (sqrtl((long double)v_data[i]) + 1e-8L);
		const long double w = (long double)m_after[i] /
				      (sqrtl((long double)v_after[i]) + 1e-8L);

		const long double later = v_after[i] + ((long double)v_data[i] - v_after[i]) / 1024;
		const long double t = (long double)m_data[i] / (sqrtl(later) + 1e-8L);

		uu += u * u;
		dd += (u - w) * (u - w);
		tt += (u - t) * (u - t);
	}
	dd = tt > dd ? tt : dd;
	assert_true(fabsl((long double)tsr_update_measure_nmse(&got) - dd / uu) <= 1e-5L * dd / uu);
}

struct row {
	float m, v, m_after, v_after, eps;
	double nmse;
	uint64_t nonfinite, overflow, exposed;
	float max_before, max_after;
};

static void test_by_hand(void **state)
{
	static const struct row rows[] = {
		{ 3, 4, 3, 4, 0, 0, 0, 0, 0, 1.5f, 1.5f },
		{ 3, 4, 1.5f, 4, 0, 0.25, 0, 0, 0, 1.5f, 0.75f },
		{ -3, 4, 3, 4, 0, 4, 0, 0, 0, 1.5f, 1.5f },
		{ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
		{ 1, 1, 1, 0, 1, 1, 0, 0, 1, 0.5f, 1 },
		{ 1, 1, 0, 0, 0, 961, 0, 0, 0, 1,
		  0 }, /* both lost: the steps that follow explode */
		{ 1, 4, 1, 1, 0, 1, 0, 0, 0, 0.5f, 1 }, /* now the larger */
		{ 1, 4, 0.5f, 1, 0, 0.9941620, 0, 0, 0, 0.5f, 0.5f }, /* a ratio: only later */
		{ 0, 1, 1, 1, 0, INFINITY, 0, 0, 0, 0, 1 },
		{ 1, 1, 8, 0, 0, INFINITY, 0, 1, 1, 0, 0 },
		{ 1, -1, 1, 0, 0, 0, 1, 0, 1, 0, 0 },
		{ NAN, 1, NAN, 1, 0, 0, 1, 0, 0, 0, 0 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		const struct row r = rows[i];
		const struct tsr_moments before = { &r.m, &r.v },
					 after = { &r.m_after, &r.v_after };
		struct tsr_update_measure u = { 0 };

		tsr_update_measure_add(&u, &before, &after, 1, r.eps);
		assert_true(u.nonfinite == r.nonfinite && u.overflow == r.overflow);
		assert_true(u.exposed == r.exposed);
		assert_true(u.max_before == r.max_before && u.max_after == r.max_after);
		assert_true(tsr_update_measure_nmse(&u) == r.nmse ||
			    fabs(tsr_update_measure_nmse(&u) / r.nmse - 1) < 1e-6);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_level_is_the_plain_loop),
		cmocka_unit_test(test_pieces_and_merged_parts),
		cmocka_unit_test(test_nmse_against_long_double),
		cmocka_unit_test(test_by_hand),
	};

	return cmocka_run_group_tests_name("update measure", tests, NULL, NULL);
}
