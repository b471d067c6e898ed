/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines whose jobs are dealt to parts. */
#include "parts/parted_pipeline.h"

#include "base/fail.h"
#include "base/progress.h"
#include "parts/part_state.h"

/* A part's pipeline: its job 0 is job range.first of the whole one. */
struct parting {
	const struct tsr_parted *p;
	const struct tsr_pipeline *all;
	struct tsr_parts *part;
	uint64_t nfound; /* jobs so far */
	struct tsr_progress progress;
};

/* --- One part ----------------------------------------------------------------------------------- */

static enum tsr_status part_open(void *ctx, const struct tsr_run *run, void *scratch,
				 struct tsr_err *err)
{
	const struct parting *w = ctx;

	return w->all->open(w->all->ctx, run, scratch, err);
}

static void part_close(void *ctx, void *scratch)
{
	const struct parting *w = ctx;

	w->all->close(w->all->ctx, scratch);
}

static void *found_in(const struct tsr_parted *p, void *scratch)
{
	return (unsigned char *)scratch + p->found_at;
}

static enum tsr_status part_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct parting *w = ctx;

	memset(found_in(w->p, scratch), 0, w->p->found_nbytes);
	return w->all->work(w->all->ctx, scratch, w->part->range.first + job, err);
}

static enum tsr_status part_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct parting *w = ctx;
	struct tsr_text *text = &w->part->text;
	const uint64_t number = w->part->range.first + job;

	if (w->p->order)
		w->p->order(w->all->ctx, scratch, number);
	tsr_text_put(text, found_in(w->p, scratch), w->p->found_nbytes);
	if (text->failed)
		return tsr_fail_nomem(err, w->part->request.path);
	w->nfound++;
	return tsr_progress_add(&w->progress, w->p->weigh(w->all->ctx, number), err);
}

static enum tsr_status part_finish(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct parting *w = ctx;

	return w->all->finish(w->all->ctx, scratch, w->part->range.first + job, err);
}

static enum tsr_status deal(const struct tsr_parted *p, struct tsr_parts *part, struct tsr_err *err)
{
	const struct tsr_deal jobs = { .njobs = p->pipeline->njobs,
				       .weigh = p->weigh,
				       .divides = p->divides,
				       .ctx = p->pipeline->ctx };

	if (p->as_before && part->range_njobs == jobs.njobs)
		return TSR_OK;
	part->range_njobs = jobs.njobs;
	return tsr_deal_jobs(&jobs, part->load, part->request.count, part->request.number,
			     &part->range, err);
}

static enum tsr_status run_part(const struct tsr_parted *p, struct tsr_parts *part,
				const struct tsr_run *run, struct tsr_err *err)
{
	struct tsr_pipeline pipeline = *p->pipeline;
	struct parting w = { .p = p, .all = p->pipeline, .part = part };
	struct tsr_err failure = { 0 };
	enum tsr_status status;
	size_t at;

	TSR_TRY(deal(p, part, err));
	w.progress = (struct tsr_progress){ .run = run,
					    .what = p->what,
					    .total_nbytes = part->range.nbytes };
	pipeline.njobs = part->range.end - part->range.first;
	pipeline.open = pipeline.open ? part_open : NULL;
	pipeline.close = pipeline.close ? part_close : NULL;
	pipeline.work = part_work;
	pipeline.commit = part_commit;
	pipeline.finish = pipeline.finish ? part_finish : NULL;
	pipeline.ctx = &w;
	at = tsr_part_report_open_run(&part->text);
	status = tsr_pipeline_run(&pipeline, run, &failure);
	if (status != TSR_OK && !(p->keeps_failures && tsr_part_keeps_failure(status))) {
		if (err)
			*err = failure;
		return status;
	}
	tsr_part_report_close_run(&part->text, at,
				  &(struct tsr_part_run){ .file = part->file,
							  .inputs = part->inputs,
							  .njobs = p->pipeline->njobs,
							  .first = part->range.first,
							  .end = part->range.end,
							  .found_nbytes = p->found_nbytes,
							  .nfound = w.nfound },
				  status == TSR_OK ? NULL : &failure);
	/* What comes after is of no use: the joining process gets no further. */
	return status == TSR_OK ? TSR_OK : tsr_part_end(part, err);
}

/* --- Parts to be joined ------------------------------------------------------------------------- */

static enum tsr_status check_run(const struct tsr_parted *p, const struct tsr_parts *part,
				 const char *name, const struct tsr_part_run *run, uint64_t done,
				 struct tsr_err *err)
{
	if (run->file != part->file)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found what was done of file %" PRIu64
				", expected file %" PRIu64,
				name, run->file, part->file);
	if (run->njobs != p->pipeline->njobs || run->first != done)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found jobs from %" PRIu64 " on of %" PRIu64
				", expected from %" PRIu64 " on of %" PRIu64,
				name, run->first, run->njobs, done, p->pipeline->njobs);
	if (run->found_nbytes != p->found_nbytes)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found %" PRIu64 " bytes of each job, expected %zu", name,
				run->found_nbytes, p->found_nbytes);
	return TSR_OK;
}

/* The reports of parts, whose jobs are taken one after the other. */
struct joining {
	const struct tsr_parted *p;
	struct tsr_parts *part;
	struct tsr_part_run run; /* of the report that is part->joined */
	uint64_t taken; /* its jobs so far */
	uint64_t done; /* those of all */
};

/* Go on to a report with a job that is not taken; false: there is none. */
static enum tsr_status find_job(struct joining *j, bool *ret, struct tsr_err *err)
{
	struct tsr_parts *part = j->part;

	for (*ret = true; !part->joined || j->taken == j->run.nfound; j->taken = 0) {
		const struct tsr_part_report *r = &part->reports[part->joined];

		if (part->joined)
			TSR_TRY(tsr_part_run_failure(&j->run, err));
		*ret = part->joined < part->request.count;
		if (!*ret)
			return TSR_OK;
		part->joined++;
		TSR_TRY(tsr_part_report_run(r, &j->run, err));
		TSR_TRY(check_run(j->p, part, r->name, &j->run, j->done, err));
	}
	return TSR_OK;
}

static enum tsr_status join_open(void *ctx, const struct tsr_run *run, void *scratch,
				 struct tsr_err *err)
{
	const struct joining *j = ctx;

	(void)run, (void)err;
	memset(scratch, 0, j->p->pipeline->scratch_nbytes);
	return TSR_OK;
}

static enum tsr_status join_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct joining *j = ctx;
	const struct tsr_parted *p = j->p;
	const struct tsr_pipeline *all = p->pipeline;
	bool found;

	TSR_TRY(find_job(j, &found, err));
	if (!found)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: found jobs up to %" PRIu64 ", expected %" PRIu64,
				j->part->reports[j->part->request.count - 1].name, job, all->njobs);
	memcpy(found_in(p, scratch), j->run.found + j->taken * p->found_nbytes, p->found_nbytes);
	j->taken++;
	j->done++;
	if (p->restore)
		p->restore(all->ctx, scratch, job);
	return all->commit ? all->commit(all->ctx, scratch, job, err) : TSR_OK;
}

static enum tsr_status join_finish(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct joining *j = ctx;

	return j->p->join_finish(j->p->pipeline->ctx, scratch, job, err);
}

/* Commits and finishes are each in order, so that more than two threads would wait. */
static enum tsr_status run_joined(const struct tsr_parted *p, const struct tsr_run *run,
				  struct tsr_err *err)
{
	struct joining j = { .p = p, .part = run->parts };
	const struct tsr_run few = { .threads = p->join_finish && tsr_run_threads(run) > 1 ? 2
											   : 1 };
	const struct tsr_pipeline pipeline = { .njobs = p->pipeline->njobs,
					       .scratch_nbytes = p->pipeline->scratch_nbytes,
					       .open = join_open,
					       .commit = join_commit,
					       .finish = p->join_finish ? join_finish : NULL,
					       .ctx = &j };
	enum tsr_status status;
	bool more;

	j.part->joined = 0;
	status = tsr_pipeline_run(&pipeline, &few, err);
	TSR_THEN(status, find_job(&j, &more, err));
	/* After a failure another pipeline can follow, of another file. */
	for (unsigned i = 0; i < j.part->request.count; i++)
		tsr_part_report_next(&j.part->reports[i]);
	return status;
}

enum tsr_status tsr_parted_run(const struct tsr_parted *p, const struct tsr_run *run,
			       struct tsr_err *err)
{
	if (!run || !run->parts)
		return tsr_pipeline_run(p->pipeline, run, err);
	return run->parts->joins ? run_joined(p, run, err) : run_part(p, run->parts, run, err);
}
