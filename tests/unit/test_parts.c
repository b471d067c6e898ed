/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs are dealt to parts once each and evenly; what they find comes back with its bits; reports fit or not. */
#include "unit.h"

#include "base/pipeline.h"
#include "parts/dealing.h"
#include "io/hash.h"
#include "parts/part.h"
#include "parts/part_report.h"
#include "parts/parted_pipeline.h"

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
		.pipeline = &pipeline, .what = "sum", .weigh = one, .found_nbytes = sizeof(double)
	};
	const struct tsr_run how = { .threads = 2, .parts = parts };

	*s = (struct summing){ .sum = 0 };
	if (tsr_part_inputs(parts, &(struct tsr_part_inputs){ .all = 17 }, err) != TSR_OK ||
	    tsr_parted_run(&parted, &how, err) != TSR_OK)
		return err->code;
	return tsr_part_end(parts, err);
}

/* The command's own words, of which a part can have fewer. */
static char words[] = "--exact\0in";

static struct tsr_text do_part(unsigned number, unsigned count, size_t nbytes, unsigned worked[N])
{
	const struct tsr_part_request request = { .number = number,
						  .count = count,
						  .path = "out",
						  .command = "sum",
						  .words = { .bytes = words, .nbytes = nbytes },
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
			texts[i] = do_part(i + 1, n, sizeof(words), worked);
		for (unsigned i = 0; i < N; i++)
			assert_int_equal(worked[i], 1);
		assert_int_equal(tsr_part_join("out", texts, n, &parts, &err), TSR_OK);
		assert_memory_equal(tsr_part_request(parts)->words.bytes, words, sizeof(words));
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

	assert_int_equal(tsr_part_join(path, texts, n, &parts, &err), TSR_E_FORMAT);
	assert_non_null(strstr(err.msg, why));
}

static void test_parts_that_do_not_fit_are_refused(void **state)
{
	unsigned worked[N];
	struct tsr_text a = do_part(1, 2, sizeof(words), worked),
			b = do_part(2, 2, sizeof(words), worked);
	struct tsr_text other = do_part(2, 2, 8, worked),
			third = do_part(2, 3, sizeof(words), worked);

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

/* The hash that belongs to a report in memory. */
static void seal(struct tsr_text *text)
{
	const size_t nbytes = sizeof(struct tsr_part_header),
		     at = offsetof(struct tsr_part_header, hash);
	const uint64_t hash = tsr_hash(text->bytes + nbytes, text->nbytes - nbytes,
				       tsr_hash(text->bytes, at, 0));

	memcpy(text->bytes + at, &hash, sizeof(hash));
}

static enum tsr_status join_both(const struct tsr_text *a, const struct tsr_text *b)
{
	const struct tsr_text texts[2] = { *a, *b };
	struct tsr_parts *parts = NULL;
	struct tsr_err err = { 0 };
	struct summing s;
	enum tsr_status status = tsr_part_join("out", texts, 2, &parts, &err);

	if (status != TSR_OK)
		return status;
	status = run(&s, parts, &err);
	tsr_part_free(parts);
	if (status == TSR_OK)
		assert_int_equal(s.committed, N);
	return status;
}

/* Every number of a report replaced by others: sizes, counts and jobs, under a hash that is right. */
static void test_numbers_that_are_not_as_expected_are_refused(void **state)
{
	static const uint32_t others[] = { 0, 1, 2, 7, 49, 51, 100, 4096, 1u << 31, UINT32_MAX };
	unsigned worked[N], refused = 0, tried = 0;
	struct tsr_text a = do_part(1, 2, sizeof(words), worked),
			b = do_part(2, 2, sizeof(words), worked), other = { 0 };
	struct tsr_part_header h;
	size_t end;

	(void)state;
	memcpy(&h, b.bytes, sizeof(h));
	/* Up to the jobs of the only pipeline, whose numbers can be any. */
	end = sizeof(h) + h.words_nbytes + offsetof(struct tsr_part_run, found);
	assert_int_equal(join_both(&a, &b), TSR_OK);
	for (size_t at = 0; at + 4 <= end; at++) {
		for (unsigned i = 0; i < COUNT_OF(others); i++) {
			other.nbytes = 0;
			tsr_text_put(&other, b.bytes, b.nbytes);
			memcpy(other.bytes + at, &others[i], sizeof(others[i]));
			if (memcmp(other.bytes, b.bytes, b.nbytes) == 0)
				continue;
			seal(&other);
			tried++;
			refused += join_both(&a, &other) != TSR_OK;
		}
	}
	/* Behind the NUL of a version, and the hash itself, nothing says anything. */
	assert_true(tried > 1000 && refused > tried / 2);
	tsr_text_free(&a);
	tsr_text_free(&b);
	tsr_text_free(&other);
}

static void test_every_bit_of_a_report_is_under_its_hash(void **state)
{
	unsigned worked[N];
	struct tsr_text a = do_part(1, 2, sizeof(words), worked),
			b = do_part(2, 2, sizeof(words), worked);

	(void)state;
	for (size_t bit = 0; bit < 8 * b.nbytes; bit++) {
		b.bytes[bit / 8] ^= (char)(1 << bit % 8);
		assert_int_equal(join_both(&a, &b), TSR_E_FORMAT);
		b.bytes[bit / 8] ^= (char)(1 << bit % 8);
	}
	for (size_t nbytes = 0; nbytes < b.nbytes; nbytes++) {
		const struct tsr_text cut = { .bytes = b.bytes, .nbytes = nbytes };

		assert_int_equal(join_both(&a, &cut), TSR_E_FORMAT);
	}
	tsr_text_free(&a);
	tsr_text_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jobs_are_dealt_once_and_in_order),
		cmocka_unit_test(test_parts_of_equal_jobs_differ_by_less_than_one),
		cmocka_unit_test(test_parts_that_had_more_get_less),
		cmocka_unit_test(test_parts_add_up_to_the_bits_of_one_process),
		cmocka_unit_test(test_parts_that_do_not_fit_are_refused),
		cmocka_unit_test(test_numbers_that_are_not_as_expected_are_refused),
		cmocka_unit_test(test_every_bit_of_a_report_is_under_its_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
