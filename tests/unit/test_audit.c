/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's audit: figures are the same on each SIMD level and for any number of threads; what a caller
 * gets wrong is refused; quantiles are by nearest rank.
 */
#include <math.h>
#include <unistd.h>

#include "base/isa.h"
#include "tersor/audit.h"
#include "unit.h"

#define PATH "x.safetensors"

/* More than a tile, in rows that have no common multiple with groups of 128 in a tile. */
#define ROWS 70
#define COLUMNS 4097

static char dir[] = "/tmp/tersor-audit-XXXXXX";

/* A momentum and a variance. */
static void write_pair(void)
{
	static float m[ROWS * COLUMNS], v[ROWS * COLUMNS];
	FILE *f = fopen(PATH, "wb");
	char head[512];
	uint64_t seed = 1, n;

	assert_non_null(f);
	for (size_t i = 0; i < ROWS * COLUMNS; i++) {
		const float unit = (float)(int32_t)random_u32(&seed) * 0x1p-31f;

		v[i] = ldexpf(1 + unit, -(int)(random_u32(&seed) % 20));
		m[i] = unit * sqrtf(v[i]);
	}
	n = (uint64_t)snprintf(
		head, sizeof(head),
		"{\"w.exp_avg\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]},"
		"\"w.exp_avg_sq\":{\"dtype\":\"F32\",\"shape\":[%d,%d],"
		"\"data_offsets\":[%zu,%zu]}}",
		ROWS, COLUMNS, sizeof(m), ROWS, COLUMNS, sizeof(m), 2 * sizeof(m));
	fwrite(&n, sizeof(n), 1, f);
	fwrite(head, 1, n, f);
	fwrite(m, 1, sizeof(m), f);
	fwrite(v, 1, sizeof(v), f);
	assert_int_equal(fclose(f), 0);
}

static int enter(void **state)
{
	(void)state;
	if (!mkdtemp(dir) || chdir(dir) != 0)
		return 1;
	write_pair();
	return 0;
}

static int leave(void **state)
{
	(void)state;
	return unlink(PATH) != 0 || rmdir(dir) != 0;
}

static enum tsr_status audit(const struct tsr_audit_options *o, unsigned threads,
			     struct tsr_audit **ret, struct tsr_err *err)
{
	static const char *const path[] = { PATH };
	const struct tsr_run run = { .threads = threads };

	return tsr_audit_run(path, 1, o, &run, ret, err);
}

static struct tsr_coding coding_of(const char *codec, enum tsr_kind kind)
{
	struct tsr_coding coding = tsr_coding_default(tsr_codec_find(codec));

	coding.kind = kind;
	return coding;
}

/* --- Figures ------------------------------------------------------------------------------------ */

/* Both have a pair, whose members' bytes need not be the same. */
static void expect_same(const struct tsr_audit *a, const struct tsr_audit *b)
{
	for (size_t t = 0; t < 2; t++) {
		for (unsigned i = 0; i < a->momenta.n; i++) {
			const struct tsr_audit_trial *x = &a->tensors[t].trials[i];
			const struct tsr_audit_trial *y = &b->tensors[t].trials[i];

			assert_int_equal(x->measured, y->measured);
			assert_true(x->nmse == y->nmse && x->mean_rel == y->mean_rel &&
				    x->max_abs == y->max_abs && x->range_mean == y->range_mean);
			assert_int_equal(x->stuck, y->stuck);
		}
	}
	for (unsigned i = 0; i <= a->momenta.n; i++) {
		for (unsigned j = 0; j <= a->variances.n; j++) {
			assert_true(tsr_audit_update(a, 0, i, j)->nmse ==
				    tsr_audit_update(b, 0, i, j)->nmse);
		}
	}
}

static void test_threads_and_levels_make_no_difference(void **state)
{
	struct tsr_audit *first = NULL;
	struct tsr_err err;

	(void)state;
	for (const char *const *level = tsr_isa_names(); *level; level++) {
		for (unsigned threads = 1; threads <= 3; threads += 2) {
			struct tsr_audit *a;

			if (!tsr_isa_select(*level))
				continue;
			assert_int_equal(audit(NULL, threads, &a, &err), TSR_OK);
			assert_int_equal(a->npairs, 1);
			assert_int_equal(a->momenta.n, a->variances.n);
			if (first)
				expect_same(first, a);
			else
				first = a;
			if (a != first)
				tsr_audit_free(a);
		}
	}
	tsr_isa_select(NULL);
	tsr_audit_free(first);
}

/* Rows of 4,097 and groups of 128 begin together at no place within a tile. */
static void test_groups_that_no_tile_holds_are_not_measured(void **state)
{
	const struct tsr_coding codings[] = { coding_of("softsign8", TSR_KIND_MOMENTUM),
					      coding_of("sqrt8", TSR_KIND_VARIANCE),
					      coding_of("e4m3", TSR_KIND_VARIANCE) };
	struct tsr_audit_options o = tsr_audit_defaults();
	struct tsr_audit *a;
	struct tsr_err err;

	(void)state;
	o.codings = codings;
	o.ncodings = COUNT_OF(codings);
	assert_int_equal(audit(&o, 1, &a, &err), TSR_OK);
	assert_true(a->tensors[0].trials[0].measured && a->tensors[1].trials[0].measured);
	assert_false(a->tensors[1].trials[1].measured);
	assert_true(tsr_audit_update(a, 0, 0, 0)->measured);
	assert_false(tsr_audit_update(a, 0, 0, 1)->measured);
	assert_true(tsr_audit_update(a, 0, 0, 0)->nmse > 0);
	tsr_audit_free(a);
}

/* --- Callers ------------------------------------------------------------------------------------ */

static void test_codings_that_cannot_be(void **state)
{
	struct tsr_coding wrong = coding_of("sqrt8", TSR_KIND_MOMENTUM), none = { .group = 1 };
	struct tsr_audit_options o = tsr_audit_defaults();
	struct tsr_audit *a = NULL;
	struct tsr_err err;

	(void)state;
	none.kind = TSR_KIND_WEIGHT;
	o.codings = &wrong;
	assert_int_equal(audit(&o, 1, &a, &err), TSR_E_USAGE);
	o.ncodings = 1;
	assert_int_equal(audit(&o, 1, &a, &err), TSR_E_USAGE);
	assert_non_null(strstr(err.msg, "sqrt8"));
	o.codings = &none;
	assert_int_equal(audit(&o, 1, &a, &err), TSR_E_USAGE);
	o.ncodings = TSR_AUDIT_CODINGS_MAX + 1;
	assert_int_equal(audit(&o, 1, &a, &err), TSR_E_USAGE);
	o = (struct tsr_audit_options){ .size = 0 };
	assert_int_equal(audit(&o, 1, &a, &err), TSR_E_USAGE);
	assert_null(a);
	tsr_audit_free(NULL);
}

static bool stop(void *ctx, uint64_t done, uint64_t total)
{
	(void)ctx;
	(void)done;
	(void)total;
	return false;
}

static void test_it_can_be_cancelled(void **state)
{
	static const char *const path[] = { PATH };
	const struct tsr_run run = { .threads = 2, .progress = stop };
	struct tsr_audit *a = NULL;
	struct tsr_err err;

	(void)state;
	assert_int_equal(tsr_audit_run(path, 1, NULL, &run, &a, &err), TSR_E_CANCELLED);
	assert_null(a);
}

static void test_quantiles_are_by_nearest_rank(void **state)
{
	double values[] = { 3, INFINITY, 1, 2 }, q[TSR_AUDIT_QUANTILES], many[40];
	static const double want[] = { 1, 1, 1, 2, 3, INFINITY, INFINITY };

	(void)state;
	tsr_audit_quantiles(values, 4, q);
	for (unsigned i = 0; i < TSR_AUDIT_QUANTILES; i++)
		assert_true(q[i] == want[i]);
	for (unsigned i = 0; i < 40; i++)
		many[i] = 40 - i;
	tsr_audit_quantiles(many, 40, q);
	for (unsigned i = 1; i < TSR_AUDIT_QUANTILES; i++)
		assert_true(q[i] == ceil(tsr_audit_percent(i) * 40 / 100.0));
	tsr_audit_quantiles(values, 0, q);
	assert_true(q[0] == 0 && q[TSR_AUDIT_QUANTILES - 1] == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_and_levels_make_no_difference),
		cmocka_unit_test(test_groups_that_no_tile_holds_are_not_measured),
		cmocka_unit_test(test_codings_that_cannot_be),
		cmocka_unit_test(test_it_can_be_cancelled),
		cmocka_unit_test(test_quantiles_are_by_nearest_rank),
	};

	return cmocka_run_group_tests(tests, enter, leave);
}
