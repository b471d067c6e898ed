/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pipeline.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/fail.h"

struct shared {
	const struct tsr_pipeline *p;
	pthread_mutex_t lock;
	pthread_cond_t turn_changed;
	uint64_t next; /* job to be taken next */
	uint64_t turn; /* job whose commit is next */
	bool failed;
	uint64_t failed_job;
	struct tsr_err err;
};

unsigned tsr_run_threads(const struct tsr_run *run)
{
	unsigned threads = run ? run->threads : 1;
	cpu_set_t cpus;

	if (!threads)
		threads = sched_getaffinity(0, sizeof(cpus), &cpus) == 0
				  ? (unsigned)CPU_COUNT(&cpus)
				  : 1;
	return threads < TSR_THREADS_MAX ? threads : TSR_THREADS_MAX;
}

/* Keep the failure of the lowest job: with one thread it would have been the only one. */
static void note_failure(struct shared *s, uint64_t job, const struct tsr_err *err)
{
	if (s->failed && s->failed_job <= job)
		return;
	s->failed = true;
	s->failed_job = job;
	s->err = *err;
}

static bool take_job(struct shared *s, uint64_t *job_ret)
{
	bool taken;

	pthread_mutex_lock(&s->lock);
	taken = !s->failed && s->next < s->p->njobs;
	if (taken)
		*job_ret = s->next++;
	pthread_mutex_unlock(&s->lock);
	return taken;
}

/* Wait for the turn of this job; it stays this job's until pass_turn(). */
static bool wait_for_turn(struct shared *s, uint64_t job)
{
	bool failed;

	pthread_mutex_lock(&s->lock);
	while (s->turn != job)
		pthread_cond_wait(&s->turn_changed, &s->lock);
	failed = s->failed && s->failed_job < job;
	pthread_mutex_unlock(&s->lock);
	return !failed;
}

static void pass_turn(struct shared *s, uint64_t job, enum tsr_status status,
		      const struct tsr_err *err)
{
	pthread_mutex_lock(&s->lock);
	if (status != TSR_OK)
		note_failure(s, job, err);
	s->turn++;
	pthread_cond_broadcast(&s->turn_changed);
	pthread_mutex_unlock(&s->lock);
}

static void do_job(struct shared *s, uint64_t job, void *scratch)
{
	const struct tsr_pipeline *p = s->p;
	struct tsr_err err = { 0 };
	enum tsr_status status = p->work(p->ctx, scratch, job, &err);
	const bool wanted = wait_for_turn(s, job);

	if (status == TSR_OK && wanted && p->commit)
		status = p->commit(p->ctx, scratch, job, &err);
	pass_turn(s, job, status, &err);
	if (status != TSR_OK || !wanted || !p->finish)
		return;
	status = p->finish(p->ctx, scratch, job, &err);
	if (status == TSR_OK)
		return;
	pthread_mutex_lock(&s->lock);
	note_failure(s, job, &err);
	pthread_mutex_unlock(&s->lock);
}

static void *worker(void *arg)
{
	struct shared *s = arg;
	const size_t nbytes = (s->p->scratch_nbytes + 64) / 64 * 64;
	void *scratch = aligned_alloc(64, nbytes);
	uint64_t job;

	/* A thread that gets no memory leaves the jobs to the others; the last resort is below. */
	while (scratch && take_job(s, &job))
		do_job(s, job, scratch);
	free(scratch);
	return NULL;
}

enum tsr_status tsr_pipeline_run(const struct tsr_pipeline *p, const struct tsr_run *run,
				 struct tsr_err *err)
{
	struct shared s = { .p = p };
	pthread_t threads[TSR_THREADS_MAX];
	const uint64_t wanted = tsr_run_threads(run);
	unsigned started = 0;

	pthread_mutex_init(&s.lock, NULL);
	pthread_cond_init(&s.turn_changed, NULL);
	while (started + 1 < wanted && started + 1 < p->njobs &&
	       pthread_create(&threads[started], NULL, worker, &s) == 0)
		started++;
	worker(&s);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&s.turn_changed);
	pthread_mutex_destroy(&s.lock);
	if (s.failed) {
		if (err)
			*err = s.err;
		return s.err.code;
	}
	if (s.turn != p->njobs)
		return tsr_fail_nomem(err, "work buffers");
	return TSR_OK;
}
