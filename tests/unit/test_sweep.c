/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sweeps against counting one value after the other with the codecs' own loops; made-up codecs that
 * bring back what no real one does; ranges, threads and levels.
 */
#include <math.h>

#include "base/isa.h"
#include "coded.h"
#include "report/reports.h"
#include "report/reports.h"
#include "tersor/sweep.h"

#define RANGE_MAX 6000

/* --- One value after the other ---------------------------------------------------------------- */

__extension__ typedef unsigned __int128 u128;

struct expected {
	struct tsr_sweep_row rows[TSR_SWEEP_ROWS];
};

static int64_t order_of(uint32_t bits)
{
	const int64_t mag = bits & 0x7fffffff;

	return bits >> 31 ? -mag : mag;
}

static void count_value(struct tsr_sweep_row *row, float x, float y)
{
	const uint32_t xb = bits_of(x), yb = bits_of(y);
	const int64_t distance = llabs(order_of(xb) - order_of(yb));
	/* A difference of the largest values overflows, their error does not. */
	const float half = fabsf(x) > 0x1p100f ? 0.5f : 1.0f;
	float r;
	u128 sum = (u128)row->rel_sum[1] << 64 | row->rel_sum[0];

	row->count++;
	row->exact += xb == yb;
	row->nan_in += is_nan_bits(xb);
	row->nan_out += is_nan_bits(yb);
	if (!is_finite_bits(xb))
		return;
	row->overflow += isinf(y) != 0;
	if (!is_finite_bits(yb))
		return;
	row->max_ulp = distance > row->max_ulp ? (uint32_t)distance : row->max_ulp;
	if (x == 0.0f)
		return;
	r = fabsf(x * half - y * half) / fabsf(x * half);
	row->compared++;
	row->max_rel = r > row->max_rel ? r : row->max_rel;
	/* An integer: it survives the conversion. */
	if (r < 0x1p16f)
		assert_true(ldexp((double)r, 47) == floor(ldexp((double)r, 47)));
	sum += r < 0x1p16f ? (uint64_t)ldexp((double)r, 47) : UINT64_C(1) << 63;
	row->rel_sum[0] = (uint64_t)sum;
	row->rel_sum[1] = (uint64_t)(sum >> 64);
}

static void expect_range(struct expected *e, const struct tsr_codec *codec, uint32_t first,
			 uint32_t last)
{
	static float x[RANGE_MAX], y[RANGE_MAX];
	static uint32_t plane[TSR_PLANES_MAX][RANGE_MAX + 64];
	const struct tsr_coding coding = tsr_coding_default(codec);
	const size_t n = last - first + 1;
	struct tsr_encode_report report = { 0 };

	assert_in_range(n, 1, RANGE_MAX);
	memset(e, 0, sizeof(*e));
	for (uint32_t i = 0; i < n; i++)
		x[i] = float_of(first + i);
	codec->encode(&coding, x, n, (void *[]){ plane[0], plane[1] }, &report);
	codec->decode(&coding, (const void *[]){ plane[0], plane[1] }, n, y);
	for (size_t i = 0; i < n; i++)
		count_value(&e->rows[bits_of(x[i]) >> 23 & 0xff], x[i], y[i]);
}

static void compare_range(const struct tsr_codec *codec, uint32_t first, uint32_t last)
{
	static struct expected want;
	struct tsr_sweep *got = NULL;
	struct tsr_err err;

	expect_range(&want, codec, first, last);
	assert_int_equal(tsr_sweep_run(&codec, 1, first, last, NULL, &got, &err), TSR_OK);
	for (unsigned i = 0; i < TSR_SWEEP_ROWS; i++) {
		const struct tsr_sweep_row *g = &got->results[0].rows[i], *w = &want.rows[i];

		if (memcmp(g, w, sizeof(*g)) != 0)
			fail_msg("%s on %s, %08x to %08x, exponent %u: count %llu %llu exact %llu "
				 "%llu over %llu %llu nan %llu %llu compared %llu %llu sum "
				 "%llx:%llx "
				 "%llx:%llx max %a %a ulp %u %u",
				 codec->name, tsr_isa_name(), first, last, i,
				 (unsigned long long)g->count, (unsigned long long)w->count,
				 (unsigned long long)g->exact, (unsigned long long)w->exact,
				 (unsigned long long)g->overflow, (unsigned long long)w->overflow,
				 (unsigned long long)g->nan_out, (unsigned long long)w->nan_out,
				 (unsigned long long)g->compared, (unsigned long long)w->compared,
				 (unsigned long long)g->rel_sum[1],
				 (unsigned long long)g->rel_sum[0],
				 (unsigned long long)w->rel_sum[1],
				 (unsigned long long)w->rel_sum[0], (double)g->max_rel,
				 (double)w->max_rel, g->max_ulp, w->max_ulp);
	}
	tsr_sweep_free(got);
}

/* Where formats begin and end, with unaligned ends; both signs. */
static void check_codecs(void)
{
	static const uint32_t places[] = {
		0x00000000, 0x00000001, 0x00007ffd, 0x007ffc01, 0x03fffe00, 0x32fffc00,
		0x337ffe03, 0x387ff800, 0x3f7ffbf1, 0x477fe000, 0x477fefff, 0x47800001,
		0x7efffff0, 0x7f7f7f00, 0x7f7ffc00, 0x7f800000, 0x7fbfff00, 0x7fffff00,
	};
	uint64_t seed = 3;

	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if ((*c)->grouped)
			continue;
		for (size_t i = 0; i < COUNT_OF(places); i++) {
			const uint32_t n = 900 + random_u32(&seed) % 2000;

			if (places[i] + n < 0x80000000u || places[i] >= 0x7fffff00)
				compare_range(*c, places[i], places[i] + n);
			compare_range(*c, places[i] | 0x80000000u,
				      places[i] < 0x7fffff00 ? (places[i] | 0x80000000u) + n / 2
							     : 0xffffffffu);
		}
		compare_range(*c, 0x3f800000, 0x3f800000);
		compare_range(*c, 0xffffffff, 0xffffffff);
		for (int i = 0; i < (is_long_run() ? 200 : 5); i++) {
			const uint32_t first = random_u32(&seed) % 0xffff0000u;

			compare_range(*c, first, first + random_u32(&seed) % RANGE_MAX);
		}
	}
}

static void test_rows_are_what_the_codecs_give(void **state)
{
	(void)state;
	on_each_level(check_codecs);
}

/* --- Made-up codecs --------------------------------------------------------------------------- */

static void encode_as_is(const struct tsr_coding *coding, const float *x, size_t n,
			 void *const plane[], struct tsr_encode_report *report)
{
	(void)coding;
	(void)report;
	memcpy(plane[0], x, n * sizeof(*x));
}

#define DEFINE_FAKE(id, expression) \
	static void decode_##id(const struct tsr_coding *coding, const void *const plane[], \
				size_t n, float *x) \
	{ \
		(void)coding; \
		for (size_t i = 0; i < n; i++) { \
			const uint32_t bits UNUSED = ((const uint32_t *)plane[0])[i]; \
\
			x[i] = float_of(expression); \
		} \
	} \
	static const struct tsr_codec fake_##id = { \
		.name = #id, \
		.nplanes = 1, \
		.planes = { { "", TSR_PER_ELEMENT, TSR_F32 } }, \
		.encode = encode_as_is, \
		.decode = decode_##id, \
	};

DEFINE_FAKE(zero, 0u)
DEFINE_FAKE(minus_zero, 0x80000000u)
DEFINE_FAKE(negated, bits ^ 0x80000000u)
DEFINE_FAKE(some_negated, bits % 7 ? bits : bits ^ 0x80000001u)
DEFINE_FAKE(infinite, 0x7f800000u)
DEFINE_FAKE(some_infinite, bits % 5 ? bits + 1 : 0xff800000u)
DEFINE_FAKE(nan, 0xffc00000u)
DEFINE_FAKE(some_nan, bits % 3 ? bits ^ 1 : 0x7f800001u)
DEFINE_FAKE(one, 0x3f800000u)
DEFINE_FAKE(largest, 0xff7fffffu)
DEFINE_FAKE(twice, bits + 0x00800000u)
DEFINE_FAKE(some_thrice, bits % 11 ? bits : bits + 0x00c00000u)
DEFINE_FAKE(some_huge, bits % 11 ? bits : bits + 0x20000000u)

static void check_fakes(void)
{
	static const struct tsr_codec *const fakes[] = {
		&fake_zero,	 &fake_minus_zero,    &fake_negated, &fake_some_negated,
		&fake_infinite,	 &fake_some_infinite, &fake_nan,     &fake_some_nan,
		&fake_one,	 &fake_largest,	      &fake_twice,   &fake_some_thrice,
		&fake_some_huge,
	};
	static const uint32_t places[] = { 0x00000000, 0x00000003, 0x007fff00, 0x1fffff00,
					   0x3f7fff00, 0x5f7fff10, 0x7f7ff000, 0x7f7fffff,
					   0x7fffff80, 0xbf7fff00, 0xff7fff00, 0xfffff000 };

	for (size_t i = 0; i < COUNT_OF(fakes); i++) {
		for (size_t j = 0; j < COUNT_OF(places); j++) {
			const uint32_t left = 0xffffffffu - places[j];

			compare_range(fakes[i], places[j], places[j] + (left < 3001 ? left : 3001));
		}
	}
}

static void test_rows_of_codecs_that_bring_back_anything(void **state)
{
	(void)state;
	on_each_level(check_fakes);
}

/* --- Ranges, threads and levels --------------------------------------------------------------- */

static struct tsr_sweep *sweep_all(uint32_t first, uint32_t last, unsigned threads)
{
	const struct tsr_codec *codecs[256];
	const struct tsr_run run = { .threads = threads };
	struct tsr_sweep *s = NULL;
	struct tsr_err err;
	unsigned n = 0;

	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (!(*c)->grouped)
			codecs[n++] = *c;
	}
	assert_int_equal(tsr_sweep_run(codecs, n, first, last, &run, &s, &err), TSR_OK);
	assert_int_equal(s->ncodecs, n);
	return s;
}

static void expect_same(const struct tsr_sweep *a, const struct tsr_sweep *b)
{
	assert_int_equal(a->ncodecs, b->ncodecs);
	for (unsigned i = 0; i < a->ncodecs; i++)
		assert_memory_equal(a->results[i].rows, b->results[i].rows,
				    sizeof(a->results[i].rows));
}

/* Three blocks and two ends, across the exponent of 1 and across the sign. */
static const uint32_t ranges[][2] = { { 0x3f7bfff1, 0x3f850123 }, { 0x7ffffc0f, 0x801003ff } };

static void test_results_do_not_depend_on_threads_and_levels(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(ranges); i++) {
		struct tsr_sweep *one;

		assert_true(tsr_isa_select("base"));
		one = sweep_all(ranges[i][0], ranges[i][1], 1);
		for (const char *const *name = tsr_isa_names(); *name; name++) {
			if (!tsr_isa_select(*name))
				continue;
			for (unsigned threads = 2; threads < 6; threads += 3) {
				struct tsr_sweep *s = sweep_all(ranges[i][0], ranges[i][1],
								threads);

				expect_same(one, s);
				tsr_sweep_free(s);
			}
		}
		tsr_sweep_free(one);
	}
	assert_true(tsr_isa_select(NULL));
}

static void test_ranges_add_up(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(ranges); i++) {
		const uint32_t cut = ranges[i][0] + 0x1000 + 77 * (uint32_t)i;
		struct tsr_sweep *whole = sweep_all(ranges[i][0], ranges[i][1], 2);
		struct tsr_sweep *a = sweep_all(ranges[i][0], cut - 1, 2);
		struct tsr_sweep *b = sweep_all(cut, ranges[i][1], 2);

		for (unsigned c = 0; c < a->ncodecs; c++) {
			for (unsigned e = 0; e < TSR_SWEEP_ROWS; e++)
				tsr_sweep_row_add(&a->results[c].rows[e], &b->results[c].rows[e]);
		}
		expect_same(whole, a);
		tsr_sweep_free(whole);
		tsr_sweep_free(a);
		tsr_sweep_free(b);
	}
}

/* --- Sums, totals and refusals ---------------------------------------------------------------- */

static void test_sums_carry(void **state)
{
	struct tsr_sweep_row a = { .compared = 2, .rel_sum = { UINT64_MAX, 1 } };
	const struct tsr_sweep_row b = { .compared = 2, .rel_sum = { 2, 3 }, .max_rel = 0.5f };

	(void)state;
	tsr_sweep_row_add(&a, &b);
	assert_true(a.rel_sum[0] == 1 && a.rel_sum[1] == 5);
	assert_true(a.compared == 4 && a.max_rel == 0.5f);
	assert_true(tsr_sweep_row_mean(&a) == ldexp(5, 64 - 47) / 4);
	assert_true(tsr_sweep_row_mean(&(struct tsr_sweep_row){ 0 }) == 0);
}

static void test_totals_leave_out_what_is_not_finite(void **state)
{
	struct tsr_sweep *s = sweep_all(0x7f7ffff0, 0x7f80000f, 1);

	(void)state;
	for (unsigned i = 0; i < s->ncodecs; i++)
		assert_int_equal(tsr_sweep_finite(&s->results[i]).count, 16);
	tsr_sweep_free(s);
}

static bool stop(void *ctx, uint64_t done, uint64_t total)
{
	assert_true(done <= total);
	return ++*(int *)ctx < 2;
}

static void test_refusals_leave_nothing(void **state)
{
	struct tsr_sweep *const untouched = (struct tsr_sweep *)(uintptr_t)16;
	const struct tsr_codec *codec = tsr_codec_find("bf16");
	int calls = 0;
	const struct tsr_run run = { .threads = 2, .progress = stop, .ctx = &calls };
	struct tsr_sweep *s = untouched;
	struct tsr_err err;

	(void)state;
	assert_int_equal(tsr_sweep_run(&codec, 1, 5, 4, NULL, &s, &err), TSR_E_USAGE);
	assert_int_equal(tsr_sweep_run(&codec, 1, 0, 0xffffff, &run, &s, &err), TSR_E_CANCELLED);
	assert_in_range(calls, 2, 3);
	codec = tsr_codec_find("softsign8");
	assert_int_equal(tsr_sweep_run(&codec, 1, 0, 4, NULL, &s, &err), TSR_E_USAGE);
	assert_ptr_equal(s, untouched);
	tsr_sweep_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows_are_what_the_codecs_give),
		cmocka_unit_test(test_rows_of_codecs_that_bring_back_anything),
		cmocka_unit_test(test_results_do_not_depend_on_threads_and_levels),
		cmocka_unit_test(test_ranges_add_up),
		cmocka_unit_test(test_sums_carry),
		cmocka_unit_test(test_totals_leave_out_what_is_not_finite),
		cmocka_unit_test(test_refusals_leave_nothing),
	};

	return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}
