/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps in parts: shares of the range, whose figures add up in any order. */
#include "sweep/sweep_parts.h"

#include "base/fail.h"
#include "io/hash.h"
#include "parts/parted_pipeline.h"
#include "sweep/kernels.h"

/* A share of a zone begins at a multiple of at most so many bit patterns, which suit tiles and GPUs. */
#define STEP_MAX (UINT64_C(1) << 20)

/*
 * Small magnitudes: codecs leave errors that are subnormal, of which some processors compute 50 times slower.
 * All shares have some of each exponent field of these.
 */
#define SMALL UINT32_C(0x10000000)
#define SIGN (UINT64_C(1) << 31)
#define EXPONENT (UINT64_C(1) << 23)

struct sharing {
	const struct tsr_sweep_plan *plan;
	const struct tsr_run *run;
	unsigned nshares;
	struct tsr_sweep *sweep;
};

/* Bit patterns from @first to before @end. */
struct range {
	uint64_t first, end;
};

/* --- Shares ------------------------------------------------------------------------------------- */

/* The zone that begins with @first: patterns that take about the same time, of which each share has some. */
static struct range zone_from(const struct sharing *s, uint64_t first)
{
	const uint64_t all = (uint64_t)s->plan->last + 1;
	const uint64_t unit = first % SIGN < SMALL ? EXPONENT : SIGN;
	const uint64_t end = (first / unit + 1) * unit;

	return (struct range){ first, end < all ? end : all };
}

/* At most a 16th of a share, so that shares stay even. */
static uint64_t step_of(const struct range *zone, unsigned nshares)
{
	uint64_t step = 1;

	while (step < STEP_MAX && 2 * step * 16 * nshares <= zone->end - zone->first)
		step *= 2;
	return step;
}

/* Where a share of a zone begins; the last one ends where one after it would begin. */
static uint64_t begin_of(const struct sharing *s, const struct range *zone, uint64_t share)
{
	const uint64_t step = step_of(zone, s->nshares), n = zone->end - zone->first;
	const uint64_t at = (zone->first + n * share / s->nshares) / step * step;

	if (share == s->nshares)
		return zone->end;
	return at > zone->first ? at : zone->first;
}

/* What a share has of the zone that begins with @*at, which becomes where the next begins. */
static struct range take_zone(const struct sharing *s, uint64_t share, uint64_t *at)
{
	const struct range zone = zone_from(s, *at);

	*at = zone.end;
	return (struct range){ begin_of(s, &zone, share), begin_of(s, &zone, share + 1) };
}

static uint64_t weigh(void *ctx, uint64_t share)
{
	const struct sharing *s = ctx;
	uint64_t n = 0;

	for (uint64_t at = s->plan->first; at <= s->plan->last;) {
		const struct range mine = take_zone(s, share, &at);

		n += mine.end - mine.first;
	}
	return n * sizeof(float) * s->plan->ncodecs;
}

static enum tsr_status sweep_range(const struct tsr_sweep_plan *p, uint32_t first, uint32_t last,
				   const struct tsr_run *run, struct tsr_sweep **ret,
				   struct tsr_err *err)
{
	if (p->ngpus)
		return tsr_sweep_run_gpu(p->codecs, p->ncodecs, first, last, p->gpus, p->ngpus, run,
					 ret, err);
	return tsr_sweep_run(p->codecs, p->ncodecs, first, last, run, ret, err);
}

/* Scratch memory of a job: rows of each codec, by exponent field. */
static struct tsr_sweep_row *rows_of(void *scratch, unsigned codec)
{
	return (struct tsr_sweep_row *)scratch + (size_t)codec * TSR_SWEEP_ROWS;
}

static size_t rows_nbytes(const struct sharing *s)
{
	return (size_t)s->plan->ncodecs * TSR_SWEEP_ROWS * sizeof(struct tsr_sweep_row);
}

/* How far a share has come before the sweep of a range, of how much. */
struct share_progress {
	const struct tsr_run *run;
	uint64_t before, total;
};

static bool report_progress(void *ctx, uint64_t done, uint64_t total)
{
	const struct share_progress *p = ctx;

	(void)total;
	return p->run->progress(p->run->ctx, p->before + done, p->total);
}

static enum tsr_status sweep_mine(const struct sharing *s, const struct range *mine,
				  struct share_progress *progress, void *rows, struct tsr_err *err)
{
	struct tsr_run run = *s->run;
	TSR_OWNED(tsr_sweep_free) struct tsr_sweep *found = NULL;

	run.parts = NULL;
	run.progress = run.progress ? report_progress : NULL;
	run.ctx = progress;
	TSR_TRY(sweep_range(s->plan, (uint32_t)mine->first, (uint32_t)(mine->end - 1), &run, &found,
			    err));
	for (unsigned c = 0; c < s->plan->ncodecs; c++)
		tsr_sweep_rows_add(rows_of(rows, c), found->results[c].rows);
	progress->before += (mine->end - mine->first) * sizeof(float) * s->plan->ncodecs;
	return TSR_OK;
}

static enum tsr_status share_work(void *ctx, void *scratch, uint64_t share, struct tsr_err *err)
{
	const struct sharing *s = ctx;
	struct share_progress progress = { .run = s->run, .total = weigh(ctx, share) };

	for (uint64_t at = s->plan->first; at <= s->plan->last;) {
		const struct range mine = take_zone(s, share, &at);

		if (mine.first < mine.end)
			TSR_TRY(sweep_mine(s, &mine, &progress, scratch, err));
	}
	return TSR_OK;
}

static enum tsr_status share_commit(void *ctx, void *scratch, uint64_t share, struct tsr_err *err)
{
	const struct sharing *s = ctx;

	(void)share;
	(void)err;
	for (unsigned c = 0; c < s->plan->ncodecs; c++)
		tsr_sweep_rows_add(s->sweep->results[c].rows, rows_of(scratch, c));
	return TSR_OK;
}

/* --- All of it ---------------------------------------------------------------------------------- */

/* A sweep reads no inputs: what it is of stands for them. */
static uint64_t hash_plan(const struct tsr_sweep_plan *plan)
{
	const uint32_t range[] = { plan->first, plan->last };
	uint64_t hash = tsr_hash(range, sizeof(range), plan->ncodecs);

	for (unsigned i = 0; i < plan->ncodecs; i++)
		hash = tsr_hash(plan->codecs[i]->name, strlen(plan->codecs[i]->name) + 1, hash);
	return hash;
}

static enum tsr_status run_shares(struct sharing *s, struct tsr_err *err)
{
	const struct tsr_pipeline pipeline = { .njobs = s->nshares,
					       .scratch_nbytes = rows_nbytes(s),
					       .work = share_work,
					       .commit = share_commit,
					       .ctx = s };
	const struct tsr_parted parted = { .pipeline = &pipeline,
					   .what = "sweep",
					   .weigh = weigh,
					   .found_nbytes = rows_nbytes(s) };

	TSR_TRY(tsr_part_inputs(s->run->parts,
				&(struct tsr_part_inputs){ .all = hash_plan(s->plan) }, err));
	TSR_TRY(tsr_parted_run(&parted, s->run, err));
	return tsr_part_end(s->run->parts, err);
}

enum tsr_status tsr_sweep_in_parts(const struct tsr_sweep_plan *plan, const struct tsr_run *run,
				   struct tsr_sweep **ret, struct tsr_err *err)
{
	struct sharing s = { .plan = plan, .run = run };
	enum tsr_status status;

	if (!run || !run->parts)
		return sweep_range(plan, plan->first, plan->last, run, ret, err);
	TSR_TRY(tsr_sweep_new(plan->codecs, plan->ncodecs, plan->first, plan->last, &s.sweep, err));
	s.nshares = tsr_part_request(run->parts)->count;
	status = run_shares(&s, err);
	return TSR_MADE(status, ret, s.sweep, tsr_sweep_free);
}
