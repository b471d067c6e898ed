/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of 8-bit floats by granularity against the same in binary64, element by element: rounding by
 * rint(), groups found by division.  For any number of threads and SIMD level.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/isa.h"
#include "tersor/granularity.h"
#include "unit.h"

#define PATH "x.npy"

static char dir[] = "/tmp/tersor-granularity-XXXXXX";

static int enter(void **state)
{
	(void)state;
	return !mkdtemp(dir) || chdir(dir) != 0;
}

static int leave(void **state)
{
	(void)state;
	return unlink(PATH) != 0 || rmdir(dir) != 0;
}

/* A tensor of @rows rows, written as an .npy file with @rank dimensions. */
struct sample {
	unsigned rank;
	size_t rows, columns;
};

static const struct sample samples[] = {
	{ 0, 1, 1 },	 { 1, 1, 1 },	  { 1, 1, 5 },	  { 1, 1, 1000 }, { 1, 1, 70001 },
	{ 2, 1, 333 },	 { 2, 7, 130 },	  { 2, 33, 17 },  { 3, 12, 64 },  { 2, 20, 8195 },
	{ 2, 3, 40001 }, { 2, 70001, 1 }, { 2, 9000, 9 },
};

static float *make(const struct sample *s, uint64_t seed)
{
	float *x = malloc(s->rows * s->columns * sizeof(*x));

	assert_non_null(x);
	for (size_t i = 0; i < s->rows * s->columns; i++) {
		const uint32_t r = random_u32(&seed);
		const float unit = (float)(int32_t)random_u32(&seed) * 0x1p-31f;

		/* Zeros, and magnitudes of 30 octaves. */
		x[i] = r % 11 ? ldexpf(unit, (int)(r % 31) - 24) : 0.0f;
	}
	return x;
}

static void write_npy(const struct sample *s, const float *x)
{
	FILE *f = fopen(PATH, "wb");
	char shape[64] = "()", head[118];

	assert_non_null(f);
	if (s->rank == 1)
		snprintf(shape, sizeof(shape), "(%zu,)", s->columns);
	else if (s->rank == 2)
		snprintf(shape, sizeof(shape), "(%zu, %zu)", s->rows, s->columns);
	else if (s->rank == 3)
		snprintf(shape, sizeof(shape), "(%zu, 2, %zu)", s->rows / 2, s->columns);
	memset(head, ' ', sizeof(head));
	head[snprintf(head, sizeof(head), "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }",
		      shape)] = ' ';
	head[sizeof(head) - 1] = '\n';
	fwrite("\x93NUMPY\1\0\x76\0", 1, 10, f);
	fwrite(head, 1, sizeof(head), f);
	fwrite(x, sizeof(*x), s->rows * s->columns, f);
	assert_int_equal(fclose(f), 0);
}

/* --- The same, element by element -------------------------------------------------------------- */

static bool is_e4m3(const struct tsr_granularity *g)
{
	return strcmp(g->format, "e4m3") == 0;
}

static double round_fp8(double t, const struct tsr_granularity *g)
{
	const int fraction = is_e4m3(g) ? 3 : 2, least = is_e4m3(g) ? -6 : -14;
	const double largest = is_e4m3(g) ? 448 : 57344;
	int exponent;
	double unit;

	frexp(t, &exponent);
	unit = ldexp(1.0, (exponent - 1 > least ? exponent - 1 : least) - fraction);
	t = rint(t / unit) * unit;
	return fabs(t) > largest ? copysign(largest, t) : t;
}

static float scale_of(float absmax, const struct tsr_granularity *g)
{
	const float scale = (absmax + 1e-10f) / (is_e4m3(g) ? 448.0f : 57344.0f);
	const uint32_t bits = bits_of(scale);

	return float_of(bits & 0xffff ? (bits | 0xffff) + 1 : bits);
}

struct plain {
	long double dd, xx;
	uint64_t zeroed, ngroups;
};

static void add_group(struct plain *p, const struct sample *s, const float *x, size_t top,
		      size_t bottom, size_t left, size_t right, const struct tsr_granularity *g)
{
	float absmax = 0, scale;

	for (size_t r = top; r < bottom; r++) {
		for (size_t c = left; c < right; c++)
			absmax = fmaxf(absmax, fabsf(x[r * s->columns + c]));
	}
	scale = scale_of(absmax, g);
	for (size_t r = top; r < bottom; r++) {
		for (size_t c = left; c < right; c++) {
			const float value = x[r * s->columns + c];
			const float t = value / scale;
			const float back = (float)round_fp8((double)t, g) * scale;

			p->zeroed += value != 0.0f && back == 0.0f;
			p->dd += ((long double)value - (long double)back) *
				 ((long double)value - (long double)back);
			p->xx += (long double)value * (long double)value;
		}
	}
	p->ngroups++;
}

static struct plain measure_plainly(const struct sample *s, const float *x,
				    const struct tsr_granularity *g)
{
	const size_t height = g->rows ? g->rows : s->rows,
		     width = g->columns ? g->columns : s->columns;
	struct plain p = { 0, 0, 0, 0 };

	for (size_t top = 0; top < s->rows; top += height) {
		const size_t bottom = top + height < s->rows ? top + height : s->rows;

		for (size_t left = 0; left < s->columns; left += width) {
			const size_t right = left + width < s->columns ? left + width : s->columns;

			add_group(&p, s, x, top, bottom, left, right, g);
		}
	}
	return p;
}

/* --- Tests ------------------------------------------------------------------------------------- */

static struct tsr_granularities *measure(unsigned threads)
{
	const char *const path = PATH;
	const struct tsr_run run = { .threads = threads };
	struct tsr_granularities *g = NULL;
	struct tsr_err err = { 0 };

	if (tsr_granularity_measure(&path, 1, NULL, &run, &g, &err) != TSR_OK)
		fail_msg("%s", err.msg);
	return g;
}

static void expect_plain(const struct sample *s, const float *x,
			 const struct tsr_granularity_tensor *t)
{
	assert_int_equal(t->rows, s->rows);
	assert_int_equal(t->columns, s->columns);
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++) {
		const struct tsr_granularity *g = tsr_granularity_get(i);
		const struct tsr_granularity_error *e = &t->error[i];
		const struct plain p = measure_plainly(s, x, g);
		const double nmse = p.xx > 0 ? (double)(p.dd / p.xx) : 0;

		assert_int_equal(e->zeroed, p.zeroed);
		assert_int_equal(e->nbytes, t->rows * t->columns + 2 * p.ngroups);
		if (!(fabs(e->nmse - nmse) <= 1e-6 * nmse))
			fail_msg("%zu x %zu, %s %s: %g, expected %g", s->rows, s->columns,
				 g->format, g->name, e->nmse, nmse);
	}
}

static void test_errors_are_those_of_each_element_by_itself(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT_OF(samples); i++) {
		float *x = make(&samples[i], i);
		struct tsr_granularities *g;

		write_npy(&samples[i], x);
		g = measure(1);
		assert_int_equal(tsr_granularities_ntensors(g), 1);
		expect_plain(&samples[i], x, tsr_granularities_tensor(g, 0));
		tsr_granularities_free(g);
		free(x);
	}
}

static void test_threads_and_levels_make_no_difference(void **state)
{
	static const struct sample large = { 2, 40, 20001 };
	float *x = make(&large, 99);
	struct tsr_granularities *first = NULL;

	(void)state;
	write_npy(&large, x);
	for (const char *const *level = tsr_isa_names(); *level; level++) {
		for (unsigned threads = 1; threads <= 3; threads += 2) {
			struct tsr_granularities *g;

			if (!tsr_isa_select(*level))
				continue;
			g = measure(threads);
			if (!first) {
				first = g;
				continue;
			}
			assert_memory_equal(tsr_granularities_tensor(g, 0)->error,
					    tsr_granularities_tensor(first, 0)->error,
					    sizeof(tsr_granularities_tensor(g, 0)->error));
			tsr_granularities_free(g);
		}
	}
	tsr_isa_select(NULL);
	tsr_granularities_free(first);
	free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errors_are_those_of_each_element_by_itself),
		cmocka_unit_test(test_threads_and_levels_make_no_difference),
	};

	return cmocka_run_group_tests(tests, enter, leave);
}
