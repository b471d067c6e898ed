/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that several threads work on and commit in order. */
#include "base/pipeline.h"

#include <pthread.h>
#include <sched.h>

#include "base/fail.h"

enum state { FREE, WORKING, WORKED, COMMITTING, COMMITTED, FINISHING };

/* A job in flight. */
struct slot {
	enum state state;
	uint64_t job;
	void *scratch;
	bool failed;
	struct tsr_err err;
};

/* Jobs finish in order, so the slots form a ring: job N is in slot N modulo their number. */
struct shared {
	const struct tsr_pipeline *p;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* there may be a step to take, or no more will come */
	uint64_t next; /* job to be taken next */
	uint64_t turn; /* job whose commit is next */
	uint64_t finish_turn; /* job whose finish is next */
	unsigned nslots;
	struct slot *slots;
	void **opened; /* the scratch memory of all, in the order of opening */
	void **scratch; /* the free ones, as a stack: the last one used is likely cached */
	bool committing, finishing; /* whether a thread is doing it */
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
	if (run && threads < run->ngpus)
		threads = run->ngpus;
	return threads < TSR_THREADS_MAX ? threads : TSR_THREADS_MAX;
}

/* Keep the failure of the lowest job, which is the one that a single thread would have met. */
static void note_failure(struct shared *s, uint64_t job, const struct tsr_err *err)
{
	if (s->failed && s->failed_job <= job)
		return;
	s->failed = true;
	s->failed_job = job;
	s->err = *err;
}

static struct slot *slot_of(const struct shared *s, uint64_t job)
{
	return &s->slots[job % s->nslots];
}

static bool no_more_jobs(const struct shared *s)
{
	return s->failed || s->next == s->p->njobs;
}

static bool can_commit(const struct shared *s)
{
	return !s->committing && s->turn < s->next && slot_of(s, s->turn)->state == WORKED;
}

static bool can_finish(const struct shared *s)
{
	return !s->finishing && s->finish_turn < s->turn &&
	       slot_of(s, s->finish_turn)->state == COMMITTED;
}

static bool can_begin(const struct shared *s)
{
	return !no_more_jobs(s) && s->next - s->finish_turn < s->nslots;
}

static bool can_step(const struct shared *s)
{
	return can_commit(s) || can_finish(s) || can_begin(s);
}

static struct slot *begin(struct shared *s)
{
	struct slot *slot = slot_of(s, s->next);

	slot->state = WORKING;
	slot->scratch = s->scratch[s->nslots - 1 - (s->next - s->finish_turn)];
	slot->job = s->next++;
	slot->failed = false;
	return slot;
}

/*
 * Take the most urgent step that is possible now: a commit, which others wait for; else a finish;
 * else a new job.  NULL if there is none.
 */
static struct slot *take_step(struct shared *s)
{
	struct slot *slot;

	if (can_commit(s)) {
		slot = slot_of(s, s->turn);
		slot->state = COMMITTING;
		s->committing = true;
		return slot;
	}
	if (can_finish(s)) {
		slot = slot_of(s, s->finish_turn);
		slot->state = FINISHING;
		s->finishing = true;
		return slot;
	}
	return can_begin(s) ? begin(s) : NULL;
}

/* Run the step, without the lock. */
static void do_step(const struct tsr_pipeline *p, struct slot *slot)
{
	enum tsr_status (*call)(void *, void *, uint64_t,
				struct tsr_err *) = slot->state == WORKING	? p->work
						    : slot->state == COMMITTING ? p->commit
										: p->finish;

	if (slot->failed || !call)
		return;
	slot->err = (struct tsr_err){ 0 };
	slot->failed = call(p->ctx, slot->scratch, slot->job, &slot->err) != TSR_OK;
}

static void end_step(struct shared *s, struct slot *slot, bool failed_before)
{
	if (slot->failed && !failed_before)
		note_failure(s, slot->job, &slot->err);
	switch (slot->state) {
	case WORKING:
		slot->state = WORKED;
		break;
	case COMMITTING:
		slot->state = COMMITTED;
		s->committing = false;
		s->turn++;
		break;
	default:
		slot->state = FREE;
		s->scratch[s->nslots - (s->next - s->finish_turn)] = slot->scratch;
		s->finishing = false;
		s->finish_turn++;
	}
}

static void *worker(void *arg)
{
	struct shared *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!no_more_jobs(s) || s->finish_turn < s->next) {
		struct slot *slot = take_step(s);
		bool failed_before;

		if (!slot) {
			pthread_cond_wait(&s->changed, &s->lock);
			continue;
		}
		/* A single thread would not have begun a job after a failed one. */
		if (slot->state == COMMITTING && s->failed && s->failed_job < slot->job)
			slot->failed = true;
		failed_before = slot->failed;
		/* Waking another costs this one time: only for a step that is left.  It wakes the next. */
		if (can_step(s))
			pthread_cond_signal(&s->changed);
		pthread_mutex_unlock(&s->lock);
		do_step(s->p, slot);
		pthread_mutex_lock(&s->lock);
		end_step(s, slot, failed_before);
	}
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* What scratch memory number @slot is opened with: one of the GPUs. */
static struct tsr_run run_of(const struct tsr_run *run, unsigned slot)
{
	struct tsr_run one = run ? *run : (struct tsr_run){ .threads = 1 };

	if (one.ngpus) {
		one.gpus += slot % one.ngpus;
		one.ngpus = 1;
	}
	return one;
}

static enum tsr_status make_scratch(const struct tsr_pipeline *p, const struct tsr_run *run,
				    void **ret, struct tsr_err *err)
{
	void *scratch = aligned_alloc(64, (p->scratch_nbytes + 64) / 64 * 64);
	enum tsr_status status;

	if (!scratch)
		return tsr_fail_nomem(err, "work buffers");
	status = p->open ? p->open(p->ctx, run, scratch, err) : TSR_OK;
	return TSR_MADE(status, ret, scratch, free);
}

/*
 * As many as there is memory for, but at least one, and one for each GPU; unused scratch costs no
 * memory.
 */
static void make_slots(struct shared *s, const struct tsr_run *run, uint64_t wanted)
{
	const unsigned least = run && run->ngpus ? run->ngpus : 1;
	struct tsr_err err;

	s->slots = calloc((size_t)wanted + 1, sizeof(*s->slots));
	s->opened = calloc((size_t)wanted + 1, sizeof(void *));
	s->scratch = calloc((size_t)wanted + 1, sizeof(void *));
	if (!s->slots || !s->opened || !s->scratch) {
		tsr_fail_nomem(&err, "work buffers");
		note_failure(s, 0, &err);
		return;
	}
	while (s->nslots < wanted) {
		const struct tsr_run one = run_of(run, s->nslots);
		const enum tsr_status status = make_scratch(s->p, &one, &s->opened[s->nslots],
							    &err);

		if (status != TSR_OK && (status != TSR_E_NOMEM || s->nslots < least))
			note_failure(s, 0, &err);
		if (status != TSR_OK)
			return;
		s->scratch[s->nslots] = s->opened[s->nslots];
		s->nslots++;
	}
}

static void free_slots(struct shared *s)
{
	for (unsigned i = 0; i < s->nslots; i++) {
		if (s->p->close)
			s->p->close(s->p->ctx, s->opened[i]);
		free(s->opened[i]);
	}
	free(s->slots);
	free(s->opened);
	free(s->scratch);
}

enum tsr_status tsr_pipeline_run(const struct tsr_pipeline *p, const struct tsr_run *run,
				 struct tsr_err *err)
{
	pthread_t threads[TSR_THREADS_MAX];
	const unsigned waiting = p->waiting ? p->waiting : TSR_PIPELINE_WAITING;
	uint64_t wanted = tsr_run_threads(run), slots;
	unsigned started = 0;
	struct shared *s = calloc(1, sizeof(*s));
	enum tsr_status status = TSR_OK;

	if (!s)
		return tsr_fail_nomem(err, "work buffers");
	s->p = p;
	wanted = wanted < p->njobs ? wanted : p->njobs;
	slots = wanted > 1 ? wanted + waiting : wanted;
	make_slots(s, run, slots < p->njobs ? slots : p->njobs);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	while (started + 1 < wanted && started + 1 < s->nslots &&
	       pthread_create(&threads[started], NULL, worker, s) == 0)
		started++;
	if (s->nslots)
		worker(s);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	if (s->failed) {
		status = s->err.code;
		if (err)
			*err = s->err;
	}
	free_slots(s);
	free(s);
	return status;
}
