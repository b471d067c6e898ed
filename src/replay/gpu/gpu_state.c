/* SPDX-License-Identifier: Apache-2.0 */
/* The state on its way to GPUs and back: plane by plane of each tile, by all threads. */
#include "base/fail.h"
#include "base/pipeline.h"
#include "replay/gpu/gpu_memory.h"

/* Scratch memory of a job; nbytes is 0 if there is no such array. */
struct move_job {
	struct tsr_replay_gpu *gpu;
	struct tsr_replay_buffer *buffer;
	unsigned char *host, *device;
	size_t nbytes;
};

/* Each array of a tile is a job. */
static enum tsr_status begin_move(const struct tsr_replaying *r, struct move_job *j, uint64_t job,
				  struct tsr_err *err)
{
	const struct tsr_tiles *tiles = &r->gpus->tiles;
	const unsigned i = (unsigned)(job % TSR_REPLAY_ARRAYS);
	const uint64_t number = job / TSR_REPLAY_ARRAYS % tiles->njobs;
	const struct tsr_tile tile = tsr_tiles_get(tiles, number);
	unsigned state = (unsigned)(job / TSR_REPLAY_ARRAYS / tiles->njobs);
	const struct tsr_replay_param *p;

	*j = (struct move_job){ .gpu = tsr_replay_owner(r->gpus, number) };
	j->device = j->gpu->states[state].tiles[number].array[i];
	while (state--)
		r = r->also;
	p = &r->params[tile.tensor];
	if (!tsr_replay_has_array(r, p, i))
		return TSR_OK;
	j->host = p->array[i] + tsr_replay_array_nbytes(p, i, tile.first);
	j->nbytes = (size_t)tsr_replay_array_nbytes(p, i, tile.n);
	return j->nbytes ? tsr_replay_take_buffer(j->gpu, &j->buffer, err) : TSR_OK;
}

static enum tsr_status put_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct move_job *j = scratch;

	TSR_TRY(begin_move(ctx, j, job, err));
	if (j->nbytes)
		memcpy(j->buffer->host, j->host, j->nbytes);
	return TSR_OK;
}

static enum tsr_status put_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct tsr_replaying *r = ctx;
	const struct move_job *j = scratch;
	struct tsr_replay_gpu *g = j->gpu;

	(void)job;
	if (!j->nbytes)
		return TSR_OK;
	TSR_TRY(tsr_gpu_copy(g->copies, j->device, j->buffer->host, j->nbytes, err));
	TSR_TRY(tsr_gpu_record(g->copies, j->buffer->done, err));
	tsr_replay_give_buffer(g, j->buffer, TSR_BUFFER_IN_FLIGHT);
	return tsr_progress_add(&r->progress, 0, err);
}

static enum tsr_status get_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_replaying *r = ctx;
	struct move_job *j = scratch;
	enum tsr_status status;

	TSR_TRY(begin_move(r, j, job, err));
	if (!j->nbytes)
		return TSR_OK;
	pthread_mutex_lock(&j->gpu->lock);
	status = tsr_gpu_copy(j->gpu->copies, j->buffer->host, j->device, j->nbytes, err);
	TSR_THEN(status, tsr_gpu_record(j->gpu->copies, j->buffer->done, err));
	pthread_mutex_unlock(&j->gpu->lock);
	TSR_THEN(status, tsr_gpu_reach(j->buffer->done, err));
	if (status == TSR_OK)
		memcpy(j->host, j->buffer->host, j->nbytes);
	tsr_replay_give_buffer(j->gpu, j->buffer, TSR_BUFFER_FREE);
	return status;
}

static enum tsr_status get_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct tsr_replaying *r = ctx;

	(void)scratch, (void)job;
	return tsr_progress_add(&r->progress, 0, err);
}

typedef enum tsr_status move_fn(void *ctx, void *scratch, uint64_t job, struct tsr_err *err);

static enum tsr_status move_state(struct tsr_replaying *r, move_fn *work, move_fn *commit)
{
	struct tsr_pipeline pipeline = {
		.scratch_nbytes = sizeof(struct move_job), .work = work, .commit = commit, .ctx = r
	};

	const struct tsr_replay_gpus *gpus = r->gpus;

	if (!gpus || !r->nparams)
		return TSR_OK;
	pipeline.njobs = gpus->nstates * gpus->tiles.njobs * TSR_REPLAY_ARRAYS;
	tsr_replay_begin_pass(r->gpus);
	TSR_TRY(tsr_pipeline_run(&pipeline, &gpus->run, r->err));
	for (unsigned i = 0; i < gpus->n; i++)
		TSR_TRY(tsr_gpu_sync(gpus->each[i].copies, r->err));
	return TSR_OK;
}

enum tsr_status tsr_replay_gpu_put_state(struct tsr_replaying *r)
{
	return move_state(r, put_work, put_commit);
}

enum tsr_status tsr_replay_gpu_get_state(struct tsr_replaying *r)
{
	return move_state(r, get_work, get_commit);
}
