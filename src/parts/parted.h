/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines whose jobs are dealt to parts. */
#ifndef TSR_PARTS_PARTED_H
#define TSR_PARTS_PARTED_H

#include "base/pipeline.h"
#include "parts/outcome.h"
#include "parts/part.h"

/**
 * struct tsr_parted - A pipeline that can be done in parts
 * @pipeline: all of its jobs
 * @what:     for messages
 * @weigh:    the bytes of a job
 * @divides:  whether a part may begin with a job; NULL: with any
 * @found:    what the commit of a job needs, out of its scratch memory or into it: what the job's work
 *            found, and what it worked on.  In the order of jobs, one at a time.  For who
 *            joins it sets all that the commit uses, to zero too what was not found
 * @commits:  a part commits its own jobs too, before @found; otherwise only who joins commits
 * @keeps_failures: failures about the inputs are reported and end the part well: who joins has the one of
 *            the lowest job.  Otherwise they are the caller's, and the part's
 * @as_before: a part has the jobs of the pipeline before, which had as many
 *
 * A part runs `work`, `found` and `finish` of its own jobs, and reports their progress.  Who joins runs
 * `found` and `commit` of all jobs, with one scratch memory that was not opened and is not cleared between
 * jobs: it may be large.
 */
struct tsr_parted {
	const struct tsr_pipeline *pipeline;
	const char *what;
	uint64_t (*weigh)(void *ctx, uint64_t job);
	bool (*divides)(void *ctx, uint64_t job);
	void (*found)(void *ctx, void *scratch, uint64_t job, struct tsr_outcome *o);
	bool commits, as_before, keeps_failures;
};

/* Run the pipeline, or what run->parts says of it. */
enum tsr_status tsr_parted_run(const struct tsr_parted *p, const struct tsr_run *run,
			       struct tsr_err *err);

#endif
