/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps on GPUs.  Threads read tiles of gradients into buffers.  In the order of tiles each is copied to
 * the GPU that has the tile's state, in one stream, and stepped with in another, while the next ones are
 * read; its buffer is free again once that step is done.  What steps notice stays on the GPU until the end
 * of the window, in one report per tile and step.
 */
#include "replay/gpu/gpu_steps.h"

#include "base/fail.h"
#include "base/pipeline.h"
#include "replay/gpu/batch_step.h"
#include "replay/gpu/gpu_memory.h"

/* --- Jobs ------------------------------------------------------------------------------------- */

/* Scratch memory of a job: a tile at one step. */
struct step_job {
	struct tsr_tile tile;
	uint64_t number; /* of the tile */
	struct tsr_replay_gpu *gpu; /* that has it */
	unsigned step;
	struct tsr_replay_buffer *buffer; /* NULL: the step is skipped, or has no such gradient */
	size_t nbytes;
	uint32_t crc; /* of these, where the file has a checksum */
};

static struct step_job locate(const struct tsr_replay_window *w, uint64_t job)
{
	const struct tsr_replay_gpus *gpus = w->r->gpus;
	const uint64_t number = job / w->n;

	return (struct step_job){ .tile = tsr_tiles_get(&gpus->tiles, number),
				  .number = number,
				  .gpu = tsr_replay_owner(gpus, number),
				  .step = (unsigned)(job % w->n) };
}

static enum tsr_status read_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_replay_window *w = ctx;
	struct step_job *j = scratch;
	enum tsr_status status;

	*j = locate(w, job);
	if (!tsr_replay_grad(w, j->step, j->tile.tensor))
		return TSR_OK;
	TSR_TRY(tsr_replay_take_buffer(j->gpu, &j->buffer, err));
	status = tsr_replay_read_grad(w, j->step, &j->tile, j->buffer->host, &j->nbytes, &j->crc,
				      err);
	if (status != TSR_OK)
		tsr_replay_give_buffer(j->gpu, j->buffer, TSR_BUFFER_FREE);
	return status;
}

/* Step one of the states, by a gradient on the GPU; NULL: it has none. */
static enum tsr_status step_state(const struct tsr_replay_window *w, const struct tsr_replaying *r,
				  const struct tsr_replay_gpu_state *s, const struct step_job *j,
				  uint64_t job, const void *grad, struct tsr_err *err)
{
	struct tsr_replay_gpu *g = j->gpu;
	const size_t param = j->tile.tensor;
	unsigned char *const *array = s->tiles[j->number].array;
	struct tsr_step step = tsr_replay_step_at(w, r, j->step, param, j->tile.first);
	float *fp32[TSR_SLOTS];

	for (unsigned i = 0; i < TSR_REPLAY_FP32; i++)
		step.plane[i / TSR_PLANES_MAX][i % TSR_PLANES_MAX] = array[i];
	if (!s->sums)
		return tsr_gpu_step(g->steps, &step, grad, j->tile.n, &s->reports[job], err);
	tsr_replay_fp32_at(array, 0, fp32);
	return tsr_gpu_step_compare(g->steps, &step, fp32, grad, j->tile.n,
				    tsr_replay_tile_size(&r->params[param], TSR_REPLAY_TILE),
				    &s->sums[param], &s->reports[job], err);
}

static enum tsr_status step_states(const struct tsr_replay_window *w, const struct step_job *j,
				   uint64_t job, const void *grad, struct tsr_err *err)
{
	const struct tsr_replay_gpu_state *s = j->gpu->states;

	for (const struct tsr_replaying *r = w->r; r; r = r->also)
		TSR_TRY(step_state(w, r, s++, j, job, grad, err));
	return TSR_OK;
}

/* A parameter without a gradient is compared as it stands. */
static bool stands(const struct tsr_replay_window *w, const struct step_job *j)
{
	return j->gpu->states[0].sums && j->tile.n && !tsr_replay_step_of(w, j->step)->skipped;
}

static enum tsr_status step_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct tsr_replay_window *w = ctx;
	const struct step_job *j = scratch;

	/* Nothing is appended after a job that failed. */
	if (job != w->r->gpus->next)
		return TSR_OK;
	if (j->buffer) {
		/* Copy the gradient to the GPU and step with it, when it is there. */
		struct tsr_replay_gpu *g = j->gpu;
		struct tsr_replay_buffer *b = j->buffer;

		if (j->tile.n) {
			TSR_TRY(tsr_gpu_copy(g->copies, b->device, b->host, j->nbytes, err));
			TSR_TRY(tsr_gpu_record(g->copies, b->copied, err));
			TSR_TRY(tsr_gpu_wait(g->steps, b->copied, err));
			TSR_TRY(step_states(w, j, job, b->device, err));
		}
		TSR_TRY(tsr_gpu_record(g->steps, b->done, err));
		tsr_replay_give_buffer(g, b, TSR_BUFFER_IN_FLIGHT);
		TSR_TRY(tsr_replay_commit_grad(w, j->step, &j->tile, j->crc, err));
	} else if (stands(w, j)) {
		TSR_TRY(step_states(w, j, job, NULL, err));
	}
	w->r->gpus->next++;
	return tsr_progress_add(&w->r->progress, j->nbytes, err);
}

/* --- What the steps noticed --------------------------------------------------------------------- */

static enum tsr_status fetch_of(const struct tsr_replay_window *w, const struct tsr_replay_gpu *g,
				uint64_t n, struct tsr_err *err)
{
	for (unsigned i = 0; i < w->r->gpus->nstates && n; i++) {
		struct tsr_replay_gpu_state *s = &g->states[i];

		TSR_TRY(tsr_gpu_copy(g->steps, s->found, s->reports, n * sizeof(*s->found), err));
		if (s->sums)
			TSR_TRY(tsr_gpu_copy(g->steps, s->compared, s->sums,
					     w->r->nparams * sizeof(*s->sums), err));
	}
	return tsr_gpu_sync(g->steps, err);
}

static enum tsr_status fetch_reports(const struct tsr_replay_window *w, uint64_t n,
				     struct tsr_err *err)
{
	for (unsigned i = 0; i < w->r->gpus->n; i++)
		TSR_TRY(fetch_of(w, &w->r->gpus->each[i], n, err));
	return TSR_OK;
}

/* Fail with the first error in the order of jobs, as on the CPU. */
static enum tsr_status judge_reports(struct tsr_replay_window *w, uint64_t n, struct tsr_err *err)
{
	for (uint64_t job = 0; job < n; job++) {
		const struct step_job j = locate(w, job);
		struct tsr_replay_gpu_state *s = j.gpu->states;

		for (const struct tsr_replaying *r = w->r; r; r = r->also, s++) {
			TSR_TRY(tsr_replay_check_report(w, r, j.step, j.tile.tensor, &s->found[job],
							err));
			if (s->compared)
				s->compared[j.tile.tensor].underflow += tsr_step_underflow(
					&s->found[job]);
		}
	}
	return TSR_OK;
}

/*
 * @status is that of the pipeline.  If a job failed, errors of steps before it come first: a damaged
 * file often has gradients that are not finite.
 */
static enum tsr_status settle(struct tsr_replay_window *w, enum tsr_status status)
{
	struct tsr_replay_gpus *gpus = w->r->gpus;
	struct tsr_err err;
	enum tsr_status noticed;

	if (status == TSR_E_CANCELLED)
		return status;
	/* A job that failed after its step was appended counts, too. */
	if (status != TSR_OK && gpus->next < gpus->tiles.njobs * w->n)
		gpus->next++;
	noticed = fetch_reports(w, gpus->next, &err);
	if (noticed == TSR_OK)
		noticed = judge_reports(w, gpus->next, &err);
	else if (status != TSR_OK)
		return status;
	if (noticed == TSR_OK)
		return status;
	*w->r->err = err;
	return noticed;
}

static enum tsr_status clear_reports(const struct tsr_replay_window *w,
				     const struct tsr_replay_gpu *g, uint64_t njobs)
{
	for (unsigned i = 0; i < w->r->gpus->nstates; i++) {
		struct tsr_replay_gpu_state *s = &g->states[i];

		TSR_TRY(tsr_gpu_zero(g->steps, s->reports, njobs * sizeof(*s->reports), w->r->err));
		if (s->sums)
			TSR_TRY(tsr_gpu_zero(g->steps, s->sums, w->r->nparams * sizeof(*s->sums),
					     w->r->err));
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_gpu_steps(struct tsr_replay_window *w)
{
	struct tsr_replay_gpus *gpus = w->r->gpus;
	const struct tsr_pipeline pipeline = { .njobs = gpus->tiles.njobs * w->n,
					       .scratch_nbytes = sizeof(struct step_job),
					       .work = read_work,
					       .commit = step_commit,
					       .ctx = w };

	tsr_replay_begin_pass(gpus);
	for (unsigned i = 0; i < gpus->n; i++)
		TSR_TRY(clear_reports(w, &gpus->each[i], pipeline.njobs));
	return settle(w, tsr_pipeline_run(&pipeline, &gpus->run, w->r->err));
}

const struct tsr_compare *tsr_replay_gpu_compared(const struct tsr_replay_window *w, unsigned state,
						  size_t param)
{
	const struct tsr_replay_gpus *gpus = w->r->gpus;
	const uint64_t first = gpus->tiles.spans[param].first_job;

	return &tsr_replay_owner(gpus, first)->states[state].compared[param];
}
