/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines whose jobs are dealt to parts. */
#ifndef TSR_PARTS_PARTED_PIPELINE_H
#define TSR_PARTS_PARTED_PIPELINE_H

#include "base/pipeline.h"
#include "parts/part.h"

/**
 * struct tsr_parted - A pipeline that can be done in parts
 * @pipeline: all of its jobs
 * @what:     for messages
 * @weigh:    the bytes of a job
 * @divides:  whether a part may begin with a job; NULL: with any
 * @found_at, @found_nbytes: where in its scratch memory a job's work leaves what its commit needs: numbers of
 *            fixed width, without padding or pointers.  Zeros before the work.  The joining process
 *            checks numbers that index anything: a part's file may say what it likes
 * @restore:  NULL, or what a commit needs besides, set up in scratch memory for the joining process
 * @order:    NULL, or what completes what a job found in the order of jobs, one at a time
 * @keeps_failures: failures about the inputs are reported and end the part well: the joining process fails
 *            with that of the lowest job.  Otherwise they are the caller's, and the part's
 * @join_finish: NULL, or what the joining process does after the commit of a job: in order and one at a time,
 *            but while others are committed
 * @as_before: a part has the jobs of the pipeline before, which had as many
 *
 * A part runs `work`, `order` and `finish` of its own jobs, writes what they found, and reports their
 * progress.  Who joins runs `restore` and `commit` of all jobs, with scratch memory that was not opened:
 * zeros at first, it is not cleared between jobs, since it may be large.
 */
struct tsr_parted {
	const struct tsr_pipeline *pipeline;
	const char *what;
	uint64_t (*weigh)(void *ctx, uint64_t job);
	bool (*divides)(void *ctx, uint64_t job);
	size_t found_at, found_nbytes;
	void (*restore)(void *ctx, void *scratch, uint64_t job);
	void (*order)(void *ctx, void *scratch, uint64_t job);
	enum tsr_status (*join_finish)(void *ctx, void *scratch, uint64_t job, struct tsr_err *err);
	bool as_before, keeps_failures;
};

/* Run the pipeline, or what run->parts says of it. */
enum tsr_status tsr_parted_run(const struct tsr_parted *p, const struct tsr_run *run,
			       struct tsr_err *err);

#endif
