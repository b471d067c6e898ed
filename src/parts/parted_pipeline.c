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

static enum tsr_status join_report(const struct tsr_parted *p, const struct tsr_parts *part,
				   unsigned number, void *scratch, uint64_t *done,
				   struct tsr_err *err)
{
	const struct tsr_part_report *r = &part->reports[number - 1];
	const struct tsr_pipeline *all = p->pipeline;
	struct tsr_part_run run;

	TSR_TRY(tsr_part_report_run(r, &run, err));
	TSR_TRY(check_run(p, part, r->name, &run, *done, err));
	for (uint64_t i = 0; i < run.nfound; i++, ++*done) {
		memcpy(found_in(p, scratch), run.found + i * p->found_nbytes, p->found_nbytes);
		if (p->restore)
			p->restore(all->ctx, scratch, *done);
		if (all->commit)
			TSR_TRY(all->commit(all->ctx, scratch, *done, err));
	}
	return tsr_part_run_failure(&run, err);
}

static enum tsr_status join_all(const struct tsr_parted *p, struct tsr_parts *part, void *scratch,
				struct tsr_err *err)
{
	const struct tsr_part_report *last = &part->reports[part->request.count - 1];
	enum tsr_status status = TSR_OK;
	uint64_t done = 0;

	for (unsigned i = 0; i < part->request.count && status == TSR_OK; i++) {
		part->joined = i + 1;
		status = join_report(p, part, i + 1, scratch, &done, err);
	}
	/* After a failure another pipeline can follow, of another file. */
	for (unsigned i = 0; i < part->request.count; i++)
		tsr_part_report_next(&part->reports[i]);
	if (status != TSR_OK || done == p->pipeline->njobs)
		return status;
	return tsr_fail(err, TSR_E_FORMAT, "%s: found jobs up to %" PRIu64 ", expected %" PRIu64,
			last->name, done, p->pipeline->njobs);
}

static enum tsr_status run_joined(const struct tsr_parted *p, struct tsr_parts *part,
				  struct tsr_err *err)
{
	const size_t nbytes = (p->pipeline->scratch_nbytes + 127) / 64 * 64;
	TSR_OWNED(free) void *scratch = aligned_alloc(64, nbytes);

	if (!scratch)
		return tsr_fail_nomem(err, p->what);
	memset(scratch, 0, nbytes);
	return join_all(p, part, scratch, err);
}

enum tsr_status tsr_parted_run(const struct tsr_parted *p, const struct tsr_run *run,
			       struct tsr_err *err)
{
	if (!run || !run->parts)
		return tsr_pipeline_run(p->pipeline, run, err);
	return run->parts->joins ? run_joined(p, run->parts, err)
				 : run_part(p, run->parts, run, err);
}
