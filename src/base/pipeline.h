/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that several threads work on and commit in order. */
#ifndef TSR_BASE_PIPELINE_H
#define TSR_BASE_PIPELINE_H

#include <stddef.h>
#include <stdint.h>

#include "tersor/run.h"
#include "tersor/status.h"

/* The most threads that a pipeline starts. */
#define TSR_THREADS_MAX 256u

/*
 * Jobs that may wait for a step while the threads work on others: for their turn after a slow job,
 * or for the last step.  That step is usually a write to one file, which the kernel serialises while
 * other writers spin.
 */
#define TSR_PIPELINE_WAITING 2u

/**
 * struct tsr_pipeline - Numbered jobs, done by several threads, committed in their order
 * @njobs:         jobs 0 to @njobs - 1
 * @scratch_nbytes: scratch memory of each job in flight, 64-byte aligned: one per thread, and with
 *                  several threads one per waiting job
 * @waiting:       jobs that may wait for a step; 0: TSR_PIPELINE_WAITING.  More keep the threads busy
 *                 where some jobs take much longer than others
 * @open:          prepares each scratch memory, before the first job; if the first call fails, so does
 *                 the run; if a later one is out of memory, fewer jobs are in flight; may be NULL.  Of
 *                 the run's GPUs each memory gets one, in turn, and each GPU has a memory or the run fails
 * @close:         called after the last job for each successful @open; may be NULL
 * @work:          the bulk of a job; any order, many at once
 * @commit:        what must happen in the order of jobs, one at a time; may be NULL
 * @finish:        what comes after that, also in order and one at a time, but while other jobs are
 *                 committed: writing to a file; may be NULL
 * @ctx:           passed to all of them, with the scratch memory of the job
 *
 * The steps of one job run one after the other, on any threads.  Because commits are in order,
 * whatever they accumulate is the same for every number of threads.
 */
struct tsr_pipeline {
	uint64_t njobs;
	size_t scratch_nbytes;
	unsigned waiting;
	enum tsr_status (*open)(void *ctx, const struct tsr_run *run, void *scratch,
				struct tsr_err *err);
	void (*close)(void *ctx, void *scratch);
	enum tsr_status (*work)(void *ctx, void *scratch, uint64_t job, struct tsr_err *err);
	enum tsr_status (*commit)(void *ctx, void *scratch, uint64_t job, struct tsr_err *err);
	enum tsr_status (*finish)(void *ctx, void *scratch, uint64_t job, struct tsr_err *err);
	void *ctx;
};

/*
 * Run all jobs.  After a failure no new job is started; the failure of the lowest job that failed
 * is returned.  Fewer threads than asked for is not an error.
 */
enum tsr_status tsr_pipeline_run(const struct tsr_pipeline *p, const struct tsr_run *run,
				 struct tsr_err *err);

/* The GPU that @run has a scratch memory opened with; NULL: the CPU. */
static inline struct tsr_gpu *tsr_run_gpu(const struct tsr_run *run)
{
	return run && run->ngpus ? run->gpus[0] : NULL;
}

/* The number of threads that @run asks for, and at least one for each of its GPUs. */
unsigned tsr_run_threads(const struct tsr_run *run);

#endif
