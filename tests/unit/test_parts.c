/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs are dealt to parts once each and evenly; what they find comes back with its bits; reports fit or not. */
#include "unit.h"

#include "base/pipeline.h"
#include "parts/dealing.h"
#include "parts/outcome.h"
#include "parts/part.h"
#include "parts/parted.h"

#define N 100u

/* --- Dealing ------------------------------------------------------------------------------------ */

struct jobs {
	uint64_t n;
	const uint64_t *nbytes;
	uint64_t every; /* parts begin at multiples of it */
};

static uint64_t weigh(void *ctx, uint64_t job)
{
	return ((const struct jobs *)ctx)->nbytes[job];
}

static bool divides(void *ctx, uint64_t job)
{
	return job % ((const struct jobs *)ctx)->every == 0;
}

/* Deal to @n parts, every part for itself; all must agree.  Returns the largest load. */
static uint64_t deal(struct jobs *jobs, const uint64_t *before, unsigned n)
{
	const struct tsr_deal d = { jobs->n, weigh, divides, jobs };
	uint64_t next = 0, most = 0;

	for (unsigned number = 1; number <= n; number++) {
		uint64_t load[N] = { 0 };
		struct tsr_job_range range;

		for (unsigned i = 0; before && i < n; i++)
			load[i] = before[i];
		assert_int_equal(tsr_deal_jobs(&d, load, n, number, &range, NULL), TSR_OK);
		assert_int_equal(range.first, next);
		assert_true(range.end >= range.first);
		if (range.end > range.first && range.end < jobs->n)
			assert_int_equal(range.end % jobs->every, 0);
		next = range.end;
		for (unsigned i = 0; i < n; i++)
			most = load[i] > most ? load[i] : most;
	}
	assert_int_equal(next, jobs->n);
	return most;
}

static void test_jobs_are_dealt_once_and_in_order(void **state)
{
	uint64_t nbytes[N], rng = 7;

	(void)state;
	for (unsigned round = 0; round < 200; round++) {
		struct jobs jobs = { random_u64(&rng) % N, nbytes, 1 + random_u64(&rng) % 9 };

		for (unsigned i = 0; i < N; i++)
			nbytes[i] = random_u64(&rng) % 4 ? random_u64(&rng) % 1000 : 0;
		deal(&jobs, NULL, 1 + (unsigned)(random_u64(&rng) % N));
	}
}

static void test_parts_of_equal_jobs_differ_by_less_than_one(void **state)
{
	uint64_t nbytes[N];

	(void)state;
	for (unsigned i = 0; i < N; i++)
		nbytes[i] = 1 << 20;
	for (unsigned n = 1; n <= N; n++) {
		struct jobs jobs = { N, nbytes, 1 };

		assert_true(deal(&jobs, NULL, n) <= (uint64_t)((N + n - 1) / n) << 20);
	}
}

static void test_parts_that_had_more_get_less(void **state)
{
	const uint64_t before[3] = { 50, 0, 20 };
	uint64_t nbytes[50];
	struct jobs jobs = { 50, nbytes, 1 };

	(void)state;
	for (unsigned i = 0; i < 50; i++)
		nbytes[i] = 1;
	assert_int_equal(deal(&jobs, before, 3), 50);
	jobs.n = 1;
	assert_int_equal(deal(&jobs, before, 3), 50);
}

/* --- Outcomes ----------------------------------------------------------------------------------- */

static void exchange(struct tsr_outcome *o, struct tsr_measure *m, uint64_t *a, bool *b)
{
	tsr_outcome_u64(o, a);
	tsr_outcome_measure(o, m);
	tsr_outcome_bool(o, b);
}

static void test_numbers_come_back_with_their_bits(void **state)
{
	struct tsr_measure m = { .n = UINT64_MAX,
				 .max_ulp = UINT32_MAX,
				 .max_abs = float_of(0x7fc00001) };
	struct tsr_measure back = { 0 };
	struct tsr_text text = { 0 };
	struct tsr_outcome to = { .into = &text }, from;
	uint64_t a = 0, a_back = 1;
	bool b = true, b_back = false;

	(void)state;
	m.sum_xx[3] = -0.0;
	m.sum_dd[7] = 0x1.fffffffffffffp-1060;
	exchange(&to, &m, &a, &b);
	from = (struct tsr_outcome){ .from = text.bytes };
	exchange(&from, &back, &a_back, &b_back);
	assert_true(tsr_outcome_is_complete(&from));
	assert_memory_equal(&m, &back, sizeof(m));
	assert_int_equal(a_back, 0);
	assert_true(b_back);
	tsr_text_free(&text);
}

static void test_other_texts_are_refused(void **state)
{
	static const char *const texts[] = {
		"",	" ",	      "1",   "1 ",   "1  2",
		"1 2 ", "1 2 3",      "1 x", "1 -2", "1 12345678901234567",
		"A 1",	"1 100000000"
	};

	(void)state;
	for (unsigned i = 0; i < COUNT_OF(texts); i++) {
		struct tsr_outcome o = { .from = texts[i] };
		uint64_t wide;
		uint32_t narrow;

		tsr_outcome_u64(&o, &wide);
		tsr_outcome_u32(&o, &narrow);
		assert_false(tsr_outcome_is_complete(&o));
	}
}

/* --- A pipeline in parts ------------------------------------------------------------------------ */

/* The sum of 1 / (job + 1) in the order of jobs, which depends on the order; and which jobs were worked on. */
struct summing {
	double sum;
	unsigned worked[N], committed;
};

static enum tsr_status work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct summing *s = ctx;

	(void)err;
	*(double *)scratch = 1.0 / (double)(job + 1);
	s->worked[job]++;
	return TSR_OK;
}

static enum tsr_status commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct summing *s = ctx;

	(void)job;
	(void)err;
	s->sum += *(double *)scratch;
	s->committed++;
	return TSR_OK;
}

static void found(void *ctx, void *scratch, uint64_t job, struct tsr_outcome *o)
{
	(void)ctx;
	(void)job;
	tsr_outcome_double(o, scratch);
}

static uint64_t one(void *ctx, uint64_t job)
{
	(void)ctx;
	(void)job;
	return 1;
}

static enum tsr_status run(struct summing *s, struct tsr_parts *parts, struct tsr_err *err)
{
	const struct tsr_pipeline pipeline = {
		.njobs = N, .scratch_nbytes = 64, .work = work, .commit = commit, .ctx = s
	};
	const struct tsr_parted parted = {
		.pipeline = &pipeline, .what = "sum", .weigh = one, .found = found
	};
	const struct tsr_run how = { .threads = 2, .parts = parts };

	*s = (struct summing){ .sum = 0 };
	if (tsr_part_inputs(parts, &(struct tsr_part_inputs){ .all = 17 }, err) != TSR_OK ||
	    tsr_parted_run(&parted, &how, err) != TSR_OK)
		return err->code;
	return tsr_part_end(parts, err);
}

static const char *const args[] = { "--exact", "in" };

static struct tsr_text do_part(unsigned number, unsigned count, unsigned nargs, unsigned worked[N])
{
	const struct tsr_part_request request = { .number = number,
						  .count = count,
						  .path = "out",
						  .command = "sum",
						  .args = args,
						  .nargs = nargs,
						  .in_memory = true };
	struct tsr_parts *parts = NULL;
	struct tsr_text copy = { 0 };
	struct tsr_err err = { 0 };
	struct summing s;

	assert_int_equal(tsr_part_new(&request, &parts, &err), TSR_OK);
	assert_int_equal(run(&s, parts, &err), TSR_PART_DONE);
	assert_int_equal(s.committed, 0);
	for (unsigned i = 0; i < N; i++)
		worked[i] += s.worked[i];
	tsr_text_put(&copy, tsr_part_text(parts)->bytes, tsr_part_text(parts)->nbytes);
	tsr_part_free(parts);
	return copy;
}

static void test_parts_add_up_to_the_bits_of_one_process(void **state)
{
	struct summing whole, joined;
	struct tsr_err err = { 0 };

	(void)state;
	assert_int_equal(run(&whole, NULL, &err), TSR_OK);
	for (unsigned n = 1; n < 2 * N; n = 2 * n + 1) {
		struct tsr_text texts[2 * N] = { { 0 } };
		unsigned worked[N] = { 0 };
		struct tsr_parts *parts = NULL;

		for (unsigned i = 0; i < n; i++)
			texts[i] = do_part(i + 1, n, 2, worked);
		for (unsigned i = 0; i < N; i++)
			assert_int_equal(worked[i], 1);
		assert_int_equal(tsr_part_join_texts("out", texts, n, &parts, &err), TSR_OK);
		assert_string_equal(tsr_part_request(parts)->args[1], "in");
		assert_int_equal(run(&joined, parts, &err), TSR_OK);
		assert_int_equal(joined.worked[0], 0);
		assert_int_equal(joined.committed, N);
		assert_memory_equal(&joined.sum, &whole.sum, sizeof(double));
		tsr_part_free(parts);
		for (unsigned i = 0; i < n; i++)
			tsr_text_free(&texts[i]);
	}
}

static void assert_refused(struct tsr_text *texts, unsigned n, const char *path, const char *why)
{
	struct tsr_parts *parts = NULL;
	struct tsr_err err = { 0 };

	assert_int_equal(tsr_part_join_texts(path, texts, n, &parts, &err), TSR_E_FORMAT);
	assert_non_null(strstr(err.msg, why));
}

static void test_parts_that_do_not_fit_are_refused(void **state)
{
	unsigned worked[N];
	struct tsr_text a = do_part(1, 2, 2, worked), b = do_part(2, 2, 2, worked);
	struct tsr_text other = do_part(2, 2, 1, worked), third = do_part(2, 3, 2, worked);

	(void)state;
	assert_refused((struct tsr_text[]){ a, a }, 2, "out", "found part 1 of 2, expected 2 of 2");
	assert_refused((struct tsr_text[]){ a, other }, 2, "out", "other inputs or options");
	assert_refused((struct tsr_text[]){ a, third }, 2, "out", "found one of 3 parts");
	assert_refused((struct tsr_text[]){ a, b }, 2, "elsewhere", "is about out");
	b.nbytes -= 20;
	assert_refused((struct tsr_text[]){ a, b }, 2, "out", "part-2-of-2");
	tsr_text_free(&a);
	tsr_text_free(&b);
	tsr_text_free(&other);
	tsr_text_free(&third);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jobs_are_dealt_once_and_in_order),
		cmocka_unit_test(test_parts_of_equal_jobs_differ_by_less_than_one),
		cmocka_unit_test(test_parts_that_had_more_get_less),
		cmocka_unit_test(test_numbers_come_back_with_their_bits),
		cmocka_unit_test(test_other_texts_are_refused),
		cmocka_unit_test(test_parts_add_up_to_the_bits_of_one_process),
		cmocka_unit_test(test_parts_that_do_not_fit_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
