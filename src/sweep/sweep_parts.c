/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps in parts: shares of the range, whose figures add up in any order. */
#include "sweep/sweep_parts.h"

#include <string.h>

#include "base/fail.h"
#include "io/hash.h"
#include "parts/parted.h"
#include "sweep/kernels.h"

/* Shares begin at multiples of at most so many bit patterns, which suit tiles and GPUs. */
#define STEP_MAX (UINT64_C(1) << 20)

struct sharing {
	const struct tsr_sweep_plan *plan;
	const struct tsr_run *run;
	unsigned nshares;
	uint64_t step;
	struct tsr_sweep *sweep;
};

/* --- Shares ------------------------------------------------------------------------------------- */

static uint64_t npatterns(const struct tsr_sweep_plan *plan)
{
	return (uint64_t)plan->last - plan->first + 1;
}

/* At most a 16th of a share, so that shares stay even. */
static uint64_t step_of(const struct tsr_sweep_plan *plan, unsigned nshares)
{
	uint64_t step = 1;

	while (step < STEP_MAX && 2 * step * 16 * nshares <= npatterns(plan))
		step *= 2;
	return step;
}

/* Where a share begins; the last one ends where one after it would begin. */
static uint64_t begin_of(const struct sharing *s, uint64_t share)
{
	const uint64_t first = s->plan->first, n = npatterns(s->plan);
	const uint64_t at = (first + n * share / s->nshares) / s->step * s->step;

	if (share == s->nshares)
		return first + n;
	return at > first ? at : first;
}

static uint64_t weigh(void *ctx, uint64_t share)
{
	const struct sharing *s = ctx;

	return (begin_of(s, share + 1) - begin_of(s, share)) * sizeof(float) * s->plan->ncodecs;
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

static enum tsr_status share_work(void *ctx, void *scratch, uint64_t share, struct tsr_err *err)
{
	const struct sharing *s = ctx;
	const uint64_t first = begin_of(s, share), end = begin_of(s, share + 1);
	struct tsr_run run = *s->run;
	struct tsr_sweep *found;

	memset(scratch, 0, rows_nbytes(s));
	if (first == end)
		return TSR_OK;
	run.parts = NULL;
	TSR_TRY(sweep_range(s->plan, (uint32_t)first, (uint32_t)(end - 1), &run, &found, err));
	for (unsigned c = 0; c < s->plan->ncodecs; c++)
		memcpy(rows_of(scratch, c), found->results[c].rows, sizeof(found->results[c].rows));
	tsr_sweep_free(found);
	return TSR_OK;
}

static enum tsr_status share_commit(void *ctx, void *scratch, uint64_t share, struct tsr_err *err)
{
	const struct sharing *s = ctx;

	(void)share;
	(void)err;
	for (unsigned c = 0; c < s->plan->ncodecs; c++) {
		for (unsigned e = 0; e < TSR_SWEEP_ROWS; e++)
			tsr_sweep_row_add(&s->sweep->results[c].rows[e], &rows_of(scratch, c)[e]);
	}
	return TSR_OK;
}

/* --- What a share found ------------------------------------------------------------------------- */

static void put_row(struct tsr_outcome *o, struct tsr_sweep_row *row)
{
	tsr_outcome_u64(o, &row->count);
	tsr_outcome_u64(o, &row->exact);
	tsr_outcome_u64(o, &row->overflow);
	tsr_outcome_u64(o, &row->nan_in);
	tsr_outcome_u64(o, &row->nan_out);
	tsr_outcome_u64(o, &row->compared);
	tsr_outcome_u64s(o, row->rel_sum, 2);
	tsr_outcome_float(o, &row->max_rel);
	tsr_outcome_u32(o, &row->max_ulp);
}

/* The rows that have any pattern: their number, then each behind its exponent field. */
static void put_rows(struct tsr_outcome *o, struct tsr_sweep_row *rows)
{
	uint32_t n = 0, e = 0;

	for (unsigned i = 0; i < TSR_SWEEP_ROWS; i++)
		n += rows[i].count != 0;
	tsr_outcome_u32(o, &n);
	for (uint32_t i = 0; i < n && !o->failed; i++, e++) {
		while (o->into && !rows[e].count)
			e++;
		tsr_outcome_u32(o, &e);
		o->failed = o->failed || e >= TSR_SWEEP_ROWS;
		if (!o->failed)
			put_row(o, &rows[e]);
	}
}

static void share_found(void *ctx, void *scratch, uint64_t share, struct tsr_outcome *o)
{
	const struct sharing *s = ctx;

	(void)share;
	if (!o->into)
		memset(scratch, 0, rows_nbytes(s));
	for (unsigned c = 0; c < s->plan->ncodecs; c++)
		put_rows(o, rows_of(scratch, c));
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
	const struct tsr_parted parted = {
		.pipeline = &pipeline, .what = "sweep", .weigh = weigh, .found = share_found
	};

	TSR_TRY(tsr_part_inputs(s->run->parts, hash_plan(s->plan), err));
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
	s.step = step_of(plan, s.nshares);
	status = run_shares(&s, err);
	if (status != TSR_OK) {
		tsr_sweep_free(s.sweep);
		return status;
	}
	*ret = s.sweep;
	return TSR_OK;
}
