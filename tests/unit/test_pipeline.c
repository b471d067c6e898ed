/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs on several threads: commits in order, the lowest failure, nothing after it. */
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "unit.h"

#define JOBS_MAX 300

enum step { WORK, COMMIT, FINISH, STEPS };

/* What the jobs did.  Threads cannot fail a test: they count what is wrong. */
struct seen {
	uint64_t seed;
	enum tsr_status fail[STEPS][JOBS_MAX]; /* what each step of each job returns */
	atomic_uint calls[STEPS][JOBS_MAX];
	atomic_uint wrong;
	atomic_uint inside; /* commits going on */
	uint64_t committed; /* commits so far; not atomic, they are one at a time */
	uint64_t sum; /* depends on the order of commits */
};

/* Lets the other threads run now and then, differently for each job. */
static void dawdle(const struct seen *s, uint64_t job)
{
	uint64_t state = s->seed + job;

	for (uint32_t i = random_u32(&state) % 4; i; i--)
		sched_yield();
}

static void expect(struct seen *s, bool condition)
{
	if (!condition)
		atomic_fetch_add(&s->wrong, 1);
}

static enum tsr_status outcome(struct seen *s, enum step step, uint64_t job, struct tsr_err *err)
{
	if (s->fail[step][job] == TSR_OK)
		return TSR_OK;
	return tsr_fail(err, s->fail[step][job], "step %d of job %d", (int)step, (int)job);
}

static enum tsr_status work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct seen *s = ctx;

	expect(s, (uintptr_t)scratch % 64 == 0);
	*(uint64_t *)scratch = job;
	dawdle(s, job);
	expect(s, atomic_fetch_add(&s->calls[WORK][job], 1) == 0);
	return outcome(s, WORK, job, err);
}

static enum tsr_status commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct seen *s = ctx;

	expect(s, atomic_fetch_add(&s->inside, 1) == 0);
	expect(s, *(const uint64_t *)scratch == job);
	expect(s, s->calls[WORK][job] == 1);
	expect(s, atomic_fetch_add(&s->calls[COMMIT][job], 1) == 0);
	expect(s, s->committed++ == job);
	s->sum = s->sum * 31 + job;
	dawdle(s, job + JOBS_MAX);
	atomic_fetch_sub(&s->inside, 1);
	return outcome(s, COMMIT, job, err);
}

static enum tsr_status finish(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct seen *s = ctx;

	expect(s, *(const uint64_t *)scratch == job);
	expect(s, s->calls[COMMIT][job] == 1);
	expect(s, atomic_fetch_add(&s->calls[FINISH][job], 1) == 0);
	dawdle(s, job + 2 * JOBS_MAX);
	return outcome(s, FINISH, job, err);
}

static struct tsr_pipeline pipeline_of(struct seen *s, uint64_t njobs)
{
	const struct tsr_pipeline p = {
		.njobs = njobs,
		.scratch_nbytes = sizeof(uint64_t),
		.work = work,
		.commit = commit,
		.finish = finish,
		.ctx = s,
	};

	return p;
}

static void test_every_job_goes_through_in_order(void **state)
{
	static const uint64_t counts[] = { 1, 2, 3, 7, 8, 9, 64, JOBS_MAX };

	(void)state;
	for (unsigned threads = 1; threads <= 8; threads++) {
		for (size_t i = 0; i < COUNT_OF(counts); i++) {
			struct seen *s = calloc(1, sizeof(*s));
			const struct tsr_run run = { .threads = threads };
			struct tsr_err err = { .msg = "untouched" };
			struct tsr_pipeline p;
			uint64_t sum = 0;

			assert_non_null(s);
			s->seed = threads * 1000 + i;
			p = pipeline_of(s, counts[i]);
			assert_int_equal(tsr_pipeline_run(&p, &run, &err), TSR_OK);
			assert_string_equal(err.msg, "untouched");
			assert_int_equal(s->wrong, 0);
			for (uint64_t job = 0; job < counts[i]; job++) {
				for (int step = 0; step < STEPS; step++)
					assert_int_equal(s->calls[step][job], 1);
				sum = sum * 31 + job;
			}
			assert_true(s->committed == counts[i] && s->sum == sum);
			free(s);
		}
	}
}

static enum tsr_status must_not_run(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	(void)ctx;
	(void)scratch;
	(void)job;
	return tsr_fail(err, TSR_E_USAGE, "a job that there is not");
}

static void test_no_jobs(void **state)
{
	(void)state;
	for (unsigned threads = 0; threads <= 8; threads++) {
		const struct tsr_run run = { .threads = threads };
		const struct tsr_pipeline p = {
			.scratch_nbytes = 1,
			.work = must_not_run,
			.commit = must_not_run,
			.finish = must_not_run,
		};

		assert_int_equal(tsr_pipeline_run(&p, &run, NULL), TSR_OK);
	}
}

/* Steps that there are not; one thread without a run; no scratch memory. */
static enum tsr_status count(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	(void)scratch;
	(void)job;
	(void)err;
	atomic_fetch_add((atomic_uint *)ctx, 1);
	return TSR_OK;
}

static void test_optional_parts(void **state)
{
	atomic_uint calls = 0;
	struct tsr_pipeline p = { .njobs = 50, .work = count, .ctx = &calls };
	const struct tsr_run runs[] = { { .threads = 0 }, { .threads = 3 }, { .threads = 100000 } };

	(void)state;
	assert_int_equal(tsr_pipeline_run(&p, NULL, NULL), TSR_OK);
	assert_int_equal(calls, 50);
	for (size_t i = 0; i < COUNT_OF(runs); i++)
		assert_int_equal(tsr_pipeline_run(&p, &runs[i], NULL), TSR_OK);
	assert_int_equal(calls, 200);
	p.finish = count;
	assert_int_equal(tsr_pipeline_run(&p, &runs[1], NULL), TSR_OK);
	assert_int_equal(calls, 300);
	p.commit = count;
	assert_int_equal(tsr_pipeline_run(&p, &runs[1], NULL), TSR_OK);
	assert_int_equal(calls, 450);
}

static void test_number_of_threads(void **state)
{
	const struct tsr_run none = { .threads = 0 }, three = { .threads = 3 },
			     many = { .threads = UINT32_MAX };
	cpu_set_t cpus;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	assert_int_equal(tsr_run_threads(NULL), 1);
	assert_int_equal(tsr_run_threads(&none), CPU_COUNT(&cpus));
	assert_int_equal(tsr_run_threads(&three), 3);
	assert_int_equal(tsr_run_threads(&many), TSR_THREADS_MAX);
}

/* --- Failures ------------------------------------------------------------------------------- */

/*
 * The lowest job with a failing step is the one reported, on any number of threads, and what a run
 * with one thread would not have committed is not committed.  @job is that job and @step its step.
 */
static void expect_failure(struct seen *s, uint64_t njobs, unsigned threads, uint64_t job,
			   enum step step)
{
	const struct tsr_run run = { .threads = threads };
	const struct tsr_pipeline p = pipeline_of(s, njobs);
	struct tsr_err err = { 0 };
	char want[40];

	snprintf(want, sizeof(want), "step %d of job %d", (int)step, (int)job);
	assert_int_equal(tsr_pipeline_run(&p, &run, &err), s->fail[step][job]);
	assert_int_equal(err.code, s->fail[step][job]);
	assert_string_equal(err.msg, want);
	assert_int_equal(s->wrong, 0);
	for (uint64_t j = 0; j < njobs; j++) {
		if (j <= job)
			assert_int_equal(s->calls[WORK][j], 1);
		if (j < job)
			assert_int_equal(s->calls[COMMIT][j] + s->calls[FINISH][j], 2);
		else if (j > job && step != FINISH)
			assert_int_equal(s->calls[COMMIT][j] + s->calls[FINISH][j], 0);
		/* Later jobs may be under way, one a thread; a single thread has stopped. */
		if (j > job && threads == 1)
			assert_int_equal(s->calls[WORK][j], 0);
	}
	assert_int_equal(s->calls[COMMIT][job], step != WORK);
	assert_int_equal(s->calls[FINISH][job], step == FINISH);
}

static void test_a_failure_in_any_step_of_any_job(void **state)
{
	enum { N = 12 };
	struct seen *s = calloc(1, sizeof(*s));

	(void)state;
	assert_non_null(s);
	for (unsigned threads = 1; threads <= 8; threads++) {
		for (uint64_t job = 0; job < N; job++) {
			for (int step = 0; step < STEPS; step++) {
				memset(s, 0, sizeof(*s));
				s->seed = threads * 100 + job;
				s->fail[step][job] = TSR_E_FORMAT;
				expect_failure(s, N, threads, job, (enum step)step);
			}
		}
	}
	free(s);
}

static void test_of_many_failures_the_lowest_counts(void **state)
{
	struct seen *s = calloc(1, sizeof(*s));
	uint64_t seed = 13;

	(void)state;
	assert_non_null(s);
	for (int round = 0; round < 600; round++) {
		const uint64_t njobs = random_u32(&seed) % 60 + 1,
			       first = random_u32(&seed) % njobs;
		enum step step = STEPS;

		memset(s, 0, sizeof(*s));
		s->seed = (uint64_t)round;
		for (uint64_t job = first; job < njobs; job++) {
			for (int i = 0; i < STEPS; i++) {
				const uint32_t r = random_u32(&seed);

				if (r % 3 == 0 || (job == first && i == FINISH && step == STEPS))
					s->fail[i][job] = r & 64 ? TSR_E_IO : TSR_E_LIMIT;
				if (job == first && step == STEPS && s->fail[i][job] != TSR_OK)
					step = (enum step)i;
			}
		}
		expect_failure(s, njobs, (unsigned)round % 8 + 1, first, step);
	}
	free(s);
}

static void test_cancelling_stops(void **state)
{
	struct seen *s = calloc(1, sizeof(*s));

	(void)state;
	assert_non_null(s);
	for (unsigned threads = 1; threads <= 8; threads++) {
		memset(s, 0, sizeof(*s));
		s->fail[COMMIT][5] = TSR_E_CANCELLED;
		expect_failure(s, JOBS_MAX, threads, 5, COMMIT);
		/* The others had begun what there was memory for, and waited for their turn. */
		const uint64_t under_way = threads > 1 ? threads + 2 : 1;

		for (uint64_t job = 5 + under_way; job < JOBS_MAX; job++)
			assert_int_equal(s->calls[WORK][job], 0);
	}
	free(s);
}

/* --- What jobs keep in their memory ---------------------------------------------------------- */

/* Memory number @fail_at, counted from 0, is not opened. */
struct openings {
	unsigned fail_at, opened, closed;
	enum tsr_status status;
	atomic_uint wrong, calls;
};

static enum tsr_status open_one(void *ctx, const struct tsr_run *run, void *scratch,
				struct tsr_err *err)
{
	struct openings *o = ctx;

	assert_non_null(run);
	if (o->opened == o->fail_at)
		return tsr_fail(err, o->status, "opening %u", o->opened);
	*(uint64_t *)scratch = 1000 + o->opened++;
	return TSR_OK;
}

static void close_one(void *ctx, void *scratch)
{
	struct openings *o = ctx;

	o->wrong += *(uint64_t *)scratch != 1000 + o->closed;
	o->closed++;
}

static enum tsr_status use_one(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct openings *o = ctx;
	const uint64_t number = *(uint64_t *)scratch - 1000;

	(void)job;
	(void)err;
	o->wrong += number >= o->opened;
	o->calls++;
	return TSR_OK;
}

static void expect_openings(struct openings *o, unsigned threads, uint64_t njobs,
			    enum tsr_status want)
{
	const struct tsr_run run = { .threads = threads };
	const struct tsr_pipeline p = { .njobs = njobs,
					.scratch_nbytes = sizeof(uint64_t),
					.open = open_one,
					.close = close_one,
					.work = use_one,
					.finish = use_one,
					.ctx = o };
	struct tsr_err err = { .msg = "untouched" };

	assert_int_equal(tsr_pipeline_run(&p, &run, &err), want);
	assert_int_equal(o->closed, o->opened);
	assert_int_equal(o->wrong, 0);
	assert_int_equal(o->calls, want == TSR_OK ? 2 * njobs : 0);
	if (want == TSR_OK)
		assert_string_equal(err.msg, "untouched");
	else
		assert_int_equal(err.code, want);
}

static void test_memory_is_opened_and_closed(void **state)
{
	(void)state;
	for (unsigned threads = 1; threads <= 8; threads++) {
		const unsigned slots = threads > 1 ? threads + TSR_PIPELINE_WAITING : 1;
		struct openings all = { .fail_at = UINT32_MAX }, none = all;

		expect_openings(&all, threads, 100, TSR_OK);
		assert_int_equal(all.opened, slots);
		expect_openings(&none, threads, 0, TSR_OK);
		assert_int_equal(none.opened, 0);
		for (unsigned i = 0; i < slots; i++) {
			struct openings full = { .fail_at = i, .status = TSR_E_NOMEM },
					bad = { .fail_at = i, .status = TSR_E_IO };

			expect_openings(&full, threads, 100, i ? TSR_OK : TSR_E_NOMEM);
			assert_int_equal(full.opened, i);
			expect_openings(&bad, threads, 100, TSR_E_IO);
		}
	}
}

/* With a sanitizer too, an allocation that cannot be had is NULL and no end of the program. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void test_no_memory_for_scratch(void **state)
{
	(void)state;
	for (unsigned threads = 1; threads <= 4; threads++) {
		const struct tsr_run run = { .threads = threads };
		const struct tsr_pipeline p = {
			.njobs = 10,
			.scratch_nbytes = SIZE_MAX / 4,
			.work = must_not_run,
		};
		struct tsr_err err = { 0 };

		assert_int_equal(tsr_pipeline_run(&p, &run, &err), TSR_E_NOMEM);
		assert_int_equal(err.code, TSR_E_NOMEM);
		assert_int_equal(tsr_pipeline_run(&p, &run, NULL), TSR_E_NOMEM);
	}
}

/* Job 0 takes until @until others are worked, or for a long time. */
struct slow {
	unsigned until;
	unsigned patience; /* milliseconds */
	atomic_uint worked;
	bool enough;
};

static enum tsr_status slow_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct slow *s = ctx;

	(void)scratch, (void)err;
	if (job)
		atomic_fetch_add(&s->worked, 1);
	for (unsigned i = 0; !job && i < s->patience && atomic_load(&s->worked) < s->until; i++)
		usleep(1000);
	if (!job)
		s->enough = atomic_load(&s->worked) >= s->until;
	return TSR_OK;
}

/* As many jobs are done behind a slow one as may wait, and the threads but one have; no more. */
static void test_jobs_that_wait(void **state)
{
	(void)state;
	for (unsigned waiting = 0; waiting <= 40; waiting += 10) {
		const struct tsr_run run = { .threads = 3 };
		const unsigned slots = 3 + (waiting ? waiting : TSR_PIPELINE_WAITING);

		for (unsigned more = 0; more < 2; more++) {
			struct slow s = { .until = slots - 1 + more,
					  .patience = more ? 50 : 10000 };
			const struct tsr_pipeline p = { .njobs = 100,
							.scratch_nbytes = 8,
							.waiting = waiting,
							.work = slow_work,
							.ctx = &s };

			assert_int_equal(tsr_pipeline_run(&p, &run, NULL), TSR_OK);
			assert_int_equal(s.enough, !more);
		}
	}
}

/* --- GPUs ------------------------------------------------------------------------------------ */

#define GPUS_MAX 5

/* What memories were opened with; GPUs are addresses only. */
struct dealing {
	char gpu[GPUS_MAX]; /* their addresses */
	unsigned opened[GPUS_MAX]; /* memories */
	unsigned calls, no_memory_from;
	atomic_uint done[GPUS_MAX]; /* jobs */
};

static enum tsr_status open_on_gpu(void *ctx, const struct tsr_run *run, void *scratch,
				   struct tsr_err *err)
{
	struct dealing *d = ctx;
	size_t which;

	assert_int_equal(run->ngpus, 1);
	which = (size_t)((char *)run->gpus[0] - d->gpu);
	assert_true(which < GPUS_MAX);
	if (d->calls++ >= d->no_memory_from)
		return tsr_fail(err, TSR_E_NOMEM, "memory on GPU %zu", which);
	d->opened[which]++;
	*(size_t *)scratch = which;
	return TSR_OK;
}

static enum tsr_status use_gpu(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct dealing *d = ctx;

	(void)job, (void)err;
	atomic_fetch_add(&d->done[*(const size_t *)scratch], 1);
	return TSR_OK;
}

static enum tsr_status deal_gpus(struct dealing *d, unsigned ngpus, unsigned threads,
				 uint64_t njobs, struct tsr_err *err)
{
	struct tsr_gpu *gpus[GPUS_MAX];
	const struct tsr_run run = { .threads = threads, .gpus = gpus, .ngpus = ngpus };
	const struct tsr_pipeline p = { .njobs = njobs,
					.scratch_nbytes = sizeof(size_t),
					.open = open_on_gpu,
					.work = use_gpu,
					.ctx = d };

	for (unsigned i = 0; i < GPUS_MAX; i++)
		gpus[i] = (struct tsr_gpu *)(void *)&d->gpu[i];
	return tsr_pipeline_run(&p, &run, err);
}

static void test_memories_are_dealt_to_gpus_in_turn(void **state)
{
	(void)state;
	for (unsigned ngpus = 1; ngpus <= GPUS_MAX; ngpus++) {
		for (unsigned threads = 1; threads <= 8; threads++) {
			struct dealing d = { .no_memory_from = UINT32_MAX };
			unsigned least = UINT32_MAX, most = 0, done = 0;

			assert_int_equal(deal_gpus(&d, ngpus, threads, 100, NULL), TSR_OK);
			for (unsigned i = 0; i < GPUS_MAX; i++) {
				if (i < ngpus && d.opened[i] < least)
					least = d.opened[i];
				if (d.opened[i] > most)
					most = d.opened[i];
				done += d.done[i];
			}
			/* Also with fewer threads than GPUs, and none that is not the run's. */
			assert_true(least >= 1 && most - least <= 1 && done == 100);
			for (unsigned i = ngpus; i < GPUS_MAX; i++)
				assert_int_equal(d.opened[i], 0);
		}
	}
}

/* A GPU without memory is not left out: only who has one already can do without more. */
static void test_every_gpu_has_a_memory(void **state)
{
	(void)state;
	for (unsigned from = 0; from < 6; from++) {
		struct dealing d = { .no_memory_from = from };
		struct tsr_err err = { 0 };

		if (from < 3) {
			assert_int_equal(deal_gpus(&d, 3, 8, 100, &err), TSR_E_NOMEM);
			assert_true(strstr(err.msg, "memory on GPU ") &&
				    err.msg[strlen("memory on GPU ")] == (char)('0' + from));
		} else {
			assert_int_equal(deal_gpus(&d, 3, 8, 100, &err), TSR_OK);
			assert_int_equal(d.opened[0] + d.opened[1] + d.opened[2], from);
		}
	}
}

static void test_each_gpu_has_a_thread(void **state)
{
	struct tsr_run run = { .threads = 1, .ngpus = 3 };

	(void)state;
	assert_int_equal(tsr_run_threads(&run), 3);
	run.threads = 7;
	assert_int_equal(tsr_run_threads(&run), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_job_goes_through_in_order),
		cmocka_unit_test(test_no_jobs),
		cmocka_unit_test(test_optional_parts),
		cmocka_unit_test(test_number_of_threads),
		cmocka_unit_test(test_a_failure_in_any_step_of_any_job),
		cmocka_unit_test(test_of_many_failures_the_lowest_counts),
		cmocka_unit_test(test_cancelling_stops),
		cmocka_unit_test(test_no_memory_for_scratch),
		cmocka_unit_test(test_jobs_that_wait),
		cmocka_unit_test(test_memory_is_opened_and_closed),
		cmocka_unit_test(test_memories_are_dealt_to_gpus_in_turn),
		cmocka_unit_test(test_every_gpu_has_a_memory),
		cmocka_unit_test(test_each_gpu_has_a_thread),
	};

	return cmocka_run_group_tests_name("pipeline", tests, NULL, NULL);
}
