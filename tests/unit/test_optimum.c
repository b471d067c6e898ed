/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codebooks are the optimum: those of Gefen's program, and those of trying every beginning of every
 * cluster.  Blocks do not depend on the parts that a tensor arrives in.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "learn/histogram.h"
#include "learn/partition.h"
#include "tersor/checkpoint.h"
#include "unit.h"

#define GOLDEN "tests/data/golden/gefen.npz"

static struct tsr_checkpoint *golden;

static int open_golden(void **state)
{
	const char *const path = GOLDEN;
	struct tsr_err err;

	(void)state;
	return tsr_checkpoint_open(&path, 1, NULL, &golden, &err) == TSR_OK ? 0 : -1;
}

static int close_golden(void **state)
{
	(void)state;
	tsr_checkpoint_close(golden);
	return 0;
}

static uint64_t load(const char *name, void *to)
{
	const struct tsr_tensor *t = tsr_checkpoint_find(golden, name);
	struct tsr_err err;

	assert_non_null(t);
	assert_int_equal(
		tsr_checkpoint_read_stored(golden, t, 0, 0, tsr_tensor_nbytes(t), to, &err),
		TSR_OK);
	return t->numel;
}

/* The counts of a case by bin; its centres are those of bins of @nbins. */
static void load_counts(const char *name, unsigned nbins, uint64_t *count)
{
	static float centre[TSR_HISTOGRAM_BINS];
	static uint64_t listed[TSR_HISTOGRAM_BINS];
	char key[64];
	uint64_t n;

	memset(count, 0, nbins * sizeof(*count));
	snprintf(key, sizeof(key), "%s_centers", name);
	n = load(key, centre);
	snprintf(key, sizeof(key), "%s_counts", name);
	assert_int_equal(load(key, listed), n);
	for (uint64_t i = 0; i < n; i++) {
		const double twice = (double)centre[i] * nbins - 1 + nbins;
		const unsigned bin = (unsigned)twice / 2;

		assert_true(twice == 2.0 * bin);
		count[bin] = listed[i];
	}
}

static const struct {
	const char *name;
	unsigned nbins, k;
	bool forced;
} cases[] = {
	{ "dp_16_256_1", 4096, 16, true }, { "dp_16_256_0", 4096, 16, false },
	{ "dp_4_64_1", 4096, 4, true },	   { "dp_3_7_1", 4096, 3, true },
	{ "dp_2_9_1", 4096, 2, true },	   { "dp_8_5_1", 4096, 8, true },
	{ "dp_5_5_1", 4096, 5, true },	   { "dp_tied", 64, 10, true },
};

static void test_codebooks_are_those_of_the_program(void **state)
{
	static uint64_t count[TSR_HISTOGRAM_BINS];
	float want[256], found[256];
	struct tsr_err err;
	char key[64];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const unsigned nbins = cases[i].nbins, k = cases[i].k;

		load_counts(cases[i].name, nbins, count);
		snprintf(key, sizeof(key), "%s_codebook", cases[i].name);
		assert_int_equal(load(key, want), k);
		assert_int_equal(tsr_optimum(count, nbins, k, cases[i].forced, found, &err),
				 TSR_OK);
		assert_memory_equal(found, want, k * sizeof(float));
	}
}

static void test_the_codebook_of_a_whole_histogram_is_that_of_the_program(void **state)
{
	static uint64_t count[TSR_HISTOGRAM_BINS];
	float want[256], found[256];
	struct tsr_err err;
	double nmse;

	(void)state;
	assert_int_equal(load("hist256_counts", count), TSR_HISTOGRAM_BINS);
	load("cb256", want);
	assert_int_equal(tsr_optimum(count, TSR_HISTOGRAM_BINS, 256, true, found, &err), TSR_OK);
	assert_memory_equal(found, want, sizeof(want));
	nmse = tsr_optimum_nmse(count, TSR_HISTOGRAM_BINS, found, 256);
	assert_true(nmse > 2.0974e-5 && nmse < 2.0976e-5);
}

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *seed >> 33;
}

#define MOST_BINS 301
#define MOST_VALUES 30

/* Nonempty bins, and sums over those before each; then, by the clusters and bins before, the least error. */
static struct {
	unsigned b;
	int64_t a[MOST_BINS], n[MOST_BINS + 1], na[MOST_BINS + 1], naa[MOST_BINS + 1];
	double least[MOST_VALUES + 1][MOST_BINS + 1];
	unsigned beginning[MOST_VALUES + 1][MOST_BINS + 1]; /* of the last cluster */
} tried;

static void add_bin(int64_t a, int64_t n)
{
	const unsigned b = tried.b++;

	tried.a[b] = a;
	tried.n[b + 1] = tried.n[b] + n;
	tried.na[b + 1] = tried.na[b] + n * a;
	tried.naa[b + 1] = tried.naa[b] + n * a * a;
}

/* The squared error of the bins from @from up to before @to around their mean, or around @c if it is not 0. */
static double error_of(unsigned from, unsigned to, int64_t c)
{
	const int64_t n = tried.n[to] - tried.n[from], na = tried.na[to] - tried.na[from];
	const int64_t naa = tried.naa[to] - tried.naa[from];

	return c ? (double)(naa - 2 * c * na + c * c * n)
		 : (double)naa - (double)na * (double)na / (double)n;
}

/* Every beginning of the last of @layer clusters; of those that are as good the lowest. */
static void try_layer(unsigned layer, int64_t c)
{
	for (unsigned to = layer; to <= tried.b; to++) {
		tried.least[layer][to] = INFINITY;
		for (unsigned from = layer - 1; from < (layer == 1 ? 1 : to); from++) {
			const double before = layer == 1 ? 0 : tried.least[layer - 1][from];
			const double error = before + error_of(from, to, c);

			if (error < tried.least[layer][to]) {
				tried.least[layer][to] = error;
				tried.beginning[layer][to] = from;
			}
		}
	}
}

static void take_means(unsigned k, float *value)
{
	unsigned to = tried.b;

	for (unsigned layer = k; layer > 0; layer--) {
		const unsigned from = tried.beginning[layer][to];
		const double n = (double)(tried.n[to] - tried.n[from]);

		value[layer - 1] = (float)((double)(tried.na[to] - tried.na[from]) /
					   (n * TSR_HISTOGRAM_BINS));
		to = from;
	}
}

/* What tsr_optimum() is to find, by trying everything. */
static void try_all(const uint64_t *count, unsigned k, bool forced, float *value)
{
	tried.b = 0;
	for (int64_t i = 0; i < TSR_HISTOGRAM_BINS; i++) {
		if (count[i])
			add_bin(2 * i + 1 - TSR_HISTOGRAM_BINS, (int64_t)count[i]);
	}
	for (unsigned i = 0; i < k && tried.b <= k; i++)
		value[i] = (float)tried.a[i < tried.b ? i : tried.b - 1] / TSR_HISTOGRAM_BINS;
	for (unsigned layer = 1; layer <= k && tried.b > k; layer++)
		try_layer(layer, !forced      ? 0
				 : layer == 1 ? -TSR_HISTOGRAM_BINS
				 : layer == k ? TSR_HISTOGRAM_BINS
					      : 0);
	if (tried.b > k)
		take_means(k, value);
	if (forced) {
		value[0] = -1.0f;
		value[k - 1] = 1.0f;
	}
}

static void test_dividing_finds_what_trying_all_finds(void **state)
{
	static uint64_t count[TSR_HISTOGRAM_BINS];
	uint64_t seed = 14;
	struct tsr_err err;

	(void)state;
	for (unsigned round = 0; round < 300; round++) {
		const unsigned n = 2 + (unsigned)next_random(&seed) % 300;
		const unsigned k = 1 + (unsigned)next_random(&seed) % 30;
		const uint64_t most = round % 3 ? (round % 3 == 1 ? 2 : 1) : 100000;
		const bool forced = k > 1 && round % 2;
		float found[256], plain[256];

		memset(count, 0, sizeof(count));
		for (unsigned i = 0; i < n; i++)
			count[next_random(&seed) % TSR_HISTOGRAM_BINS] = 1 +
									 next_random(&seed) % most;
		assert_int_equal(tsr_optimum(count, TSR_HISTOGRAM_BINS, k, forced, found, &err),
				 TSR_OK);
		try_all(count, k, forced, plain);
		assert_memory_equal(found, plain, k * sizeof(float));
	}
}

/* Blocks of 12 that differ, as squares. */
static void fill(float *x, uint64_t n, uint64_t *seed)
{
	float scale = 1;

	for (uint64_t i = 0; i < n; i++) {
		if (i % 12 == 0)
			scale = 0x1p-20f * (float)(1 + next_random(seed) % 100000);
		x[i] = scale * (0.5f + 0x1p-31f * (float)next_random(seed));
	}
}

static struct tsr_partition *divide_by(uint64_t n, enum tsr_partition_rule rule, const float *x,
				       uint64_t step)
{
	struct tsr_partition_part *part = tsr_partition_part_new((size_t)n);
	struct tsr_partition *p = NULL;
	struct tsr_err err;

	assert_non_null(part);
	assert_int_equal(tsr_partition_new(n, rule, "test", &p, &err), TSR_OK);
	for (uint64_t first = 0; first < n; first += step) {
		const uint64_t size = n - first < step ? n - first : step;

		assert_int_equal(
			tsr_partition_prepare(p, first, x + first, (size_t)size, part, &err),
			TSR_OK);
		tsr_partition_add(p, part);
	}
	tsr_partition_part_free(part);
	return p;
}

static void test_blocks_do_not_depend_on_the_parts(void **state)
{
	static const uint64_t steps[] = { 1, 5, 12, 48, 97, 1000, 5040 };
	enum { N = 5040 };
	static float x[N];
	uint64_t seed = 3;

	(void)state;
	fill(x, N, &seed);
	for (unsigned rule = 0; rule < 2; rule++) {
		struct tsr_partition *whole = divide_by(N, (enum tsr_partition_rule)rule, x, N);

		assert_int_equal(tsr_partition_period(whole), 12);
		for (size_t s = 0; s < sizeof(steps) / sizeof(*steps); s++) {
			struct tsr_partition *p = divide_by(N, (enum tsr_partition_rule)rule, x,
							    steps[s]);
			double score, other;
			uint64_t length, same;

			for (size_t i = 0; tsr_partition_candidate(whole, i, &length, &score);
			     i++) {
				assert_true(tsr_partition_candidate(p, i, &same, &other));
				assert_int_equal(length, same);
				assert_true(score == other);
			}
			free(p);
		}
		free(whole);
	}
}

static void test_what_has_no_blocks_has_period_1(void **state)
{
	static const uint64_t sizes[] = { 1, 2, 3, 13, 8191 };
	static float x[8191];

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct tsr_partition *p = divide_by(sizes[i], TSR_PARTITION_ADJACENT, x, 4096);

		assert_int_equal(tsr_partition_period(p), 1);
		free(p);
	}
	assert_int_equal(tsr_largest_divisor(8191, 256), 1);
	assert_int_equal(tsr_largest_divisor(1000, 256), 250);
	assert_int_equal(tsr_largest_divisor(7, 256), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_codebooks_are_those_of_the_program),
		cmocka_unit_test(test_the_codebook_of_a_whole_histogram_is_that_of_the_program),
		cmocka_unit_test(test_dividing_finds_what_trying_all_finds),
		cmocka_unit_test(test_blocks_do_not_depend_on_the_parts),
		cmocka_unit_test(test_what_has_no_blocks_has_period_1),
	};

	return cmocka_run_group_tests(tests, open_golden, close_golden);
}
