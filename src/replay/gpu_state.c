/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a replay: to a GPU and back, plane by plane of each tile, by all threads. */
#include "replay/gpu_state.h"

#include <string.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "replay/gpu_memory.h"

/* Planes of all parts of a parameter; each plane of each tile is a job. */
#define NPLANES (TSR_PARTS * TSR_PLANES_MAX)

/* One thread's job; without bytes if there is no such plane. */
struct move_job {
	struct tsr_replay_buffer *buffer;
	unsigned char *host, *device;
	size_t nbytes;
};

static enum tsr_status begin_move(const struct tsr_replaying *r, struct move_job *j, uint64_t job,
				  struct tsr_err *err)
{
	const struct tsr_tile tile = tsr_tiles_get(&r->gpu->tiles, job / NPLANES);
	const unsigned slot = (unsigned)(job % NPLANES);
	const unsigned part = slot / TSR_PLANES_MAX, i = slot % TSR_PLANES_MAX;
	const struct tsr_replay_param *p = &r->params[tile.tensor];
	const struct tsr_coding *coding = &p->coding[part];
	uint64_t at;

	*j = (struct move_job){ .nbytes = 0 };
	if (!coding->codec || i >= coding->codec->nplanes)
		return TSR_OK;
	at = tsr_plane_nbytes(coding, i, tile.first);
	j->host = p->plane[part][i] + at;
	j->device = r->gpu->planes[tile.tensor].plane[part][i] + at;
	j->nbytes = (size_t)tsr_plane_nbytes(coding, i, tile.n);
	return j->nbytes ? tsr_replay_take_buffer(r->gpu, &j->buffer, err) : TSR_OK;
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
	struct tsr_replay_gpu *g = r->gpu;

	(void)job;
	if (!j->nbytes)
		return TSR_OK;
	TSR_TRY(tsr_gpu_put(g->copies, j->device, j->buffer->host, j->nbytes, err));
	TSR_TRY(tsr_gpu_record(g->copies, j->buffer->done, err));
	tsr_replay_give_buffer(g, j->buffer, TSR_BUFFER_IN_FLIGHT);
	return tsr_progress_add(&r->progress, 0, err);
}

static enum tsr_status start_get(struct tsr_replay_gpu *g, const struct move_job *j,
				 struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_get(g->copies, j->buffer->host, j->device, j->nbytes, err));
	return tsr_gpu_record(g->copies, j->buffer->done, err);
}

static enum tsr_status get_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_replaying *r = ctx;
	struct move_job *j = scratch;
	enum tsr_status status;

	TSR_TRY(begin_move(r, j, job, err));
	if (!j->nbytes)
		return TSR_OK;
	pthread_mutex_lock(&r->gpu->lock);
	status = start_get(r->gpu, j, err);
	pthread_mutex_unlock(&r->gpu->lock);
	if (status == TSR_OK)
		status = tsr_gpu_reach(j->buffer->done, err);
	if (status == TSR_OK)
		memcpy(j->host, j->buffer->host, j->nbytes);
	tsr_replay_give_buffer(r->gpu, j->buffer, TSR_BUFFER_FREE);
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

	if (!r->gpu || !r->nparams)
		return TSR_OK;
	pipeline.njobs = r->gpu->tiles.njobs * NPLANES;
	tsr_replay_begin_pass(r->gpu);
	TSR_TRY(tsr_pipeline_run(&pipeline, &r->gpu->run, r->err));
	return tsr_gpu_sync(r->gpu->copies, r->err);
}

enum tsr_status tsr_replay_gpu_put_state(struct tsr_replaying *r)
{
	return move_state(r, put_work, put_commit);
}

enum tsr_status tsr_replay_gpu_get_state(struct tsr_replaying *r)
{
	return move_state(r, get_work, get_commit);
}
