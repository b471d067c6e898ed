/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay has on a GPU: the state, and buffers by which bytes get there and back. */
#include "replay/gpu/gpu_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/pipeline.h"

/* The most elements of a tile on a GPU: 16 MiB of FP32. */
#define GPU_TILE TSR_REPLAY_ALIGN_MAX

/*
 * With at least so many bytes of gradients per thread a GPU is faster, though it takes half a second
 * to start; measured with 16 threads (docs/performance.md, "Replays").
 */
#define WORTH_A_GPU (UINT64_C(1) << 29)

/* --- What is asked for ------------------------------------------------------------------------ */

static bool needs_cpu(const struct tsr_replay_options *o)
{
	return o->compare || o->check_numerics || o->each_step;
}

enum tsr_status tsr_replay_gpu_check(const struct tsr_replaying *r)
{
	if (r->options->gpu < 0 || !needs_cpu(r->options))
		return TSR_OK;
	return tsr_fail_hint(r->err, TSR_E_USAGE, TSR_HINT_CPU, "cuda:%d: %s only runs on the CPU",
			     r->options->gpu,
			     r->options->compare     ? "comparing with FP32"
			     : r->options->each_step ? "looking at each step"
						     : "checking numerics");
}

/* --- Memory on the GPU -------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t nbytes)
{
	return (nbytes + 255) / 256 * 256;
}

/* Place all planes from @state on, unless NULL; returns how many bytes they take. */
static uint64_t place_planes(const struct tsr_replaying *r, struct tsr_replay_planes *planes,
			     unsigned char *state)
{
	uint64_t at = 0;

	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];

		for (unsigned part = 0; part < TSR_PARTS; part++) {
			const struct tsr_coding *coding = &p->coding[part];

			for (unsigned k = 0; coding->codec && k < coding->codec->nplanes; k++) {
				if (state)
					planes[i].plane[part][k] = state + at;
				at += align_up(tsr_plane_nbytes(coding, k, p->numel));
			}
		}
	}
	return at;
}

static enum tsr_status make_buffers(struct tsr_replay_gpu *g, struct tsr_err *err)
{
	const uint64_t nbytes = g->nbuffers * g->buffer_nbytes;

	TSR_TRY(tsr_gpu_alloc(g->gpu, nbytes, "gradients", (void **)&g->device, err));
	TSR_TRY(tsr_gpu_alloc_host(g->gpu, nbytes, "gradients, in host memory", (void **)&g->host,
				   err));
	for (unsigned i = 0; i < g->nbuffers; i++) {
		struct tsr_replay_buffer *b = &g->buffers[i];

		b->host = g->host + i * g->buffer_nbytes;
		b->device = g->device + i * g->buffer_nbytes;
		TSR_TRY(tsr_gpu_event_new(g->gpu, &b->copied, err));
		TSR_TRY(tsr_gpu_event_new(g->gpu, &b->done, err));
	}
	return TSR_OK;
}

/* Steps without a fused kernel allocate memory when they begin; check now that they can. */
static enum tsr_status check_room(const struct tsr_replay_gpu *g, struct tsr_err *err)
{
	void *memory;

	TSR_TRY(tsr_gpu_alloc(g->gpu, TSR_PARTS * g->buffer_nbytes, "elements in FP32", &memory,
			      err));
	tsr_gpu_free(g->gpu, memory);
	return TSR_OK;
}

static enum tsr_status take_memory(struct tsr_replaying *r, struct tsr_replay_gpu *g,
				   struct tsr_err *err)
{
	const unsigned threads = tsr_run_threads(r->run);
	uint64_t nreports;
	size_t longest;

	g->planes = calloc(r->nparams + 1, sizeof(*g->planes));
	if (!g->planes)
		return tsr_fail_nomem(err, r->c->path);
	TSR_TRY(tsr_replay_cut(r, GPU_TILE, &g->tiles, &longest));
	g->run.threads = threads < TSR_REPLAY_READERS_MAX ? threads : TSR_REPLAY_READERS_MAX;
	g->nbuffers = g->run.threads + TSR_PIPELINE_WAITING + TSR_REPLAY_IN_FLIGHT;
	g->buffer_nbytes = align_up(longest * sizeof(float) + 1);
	nreports = g->tiles.njobs * TSR_REPLAY_WINDOW + 1;
	g->found = calloc(nreports, sizeof(*g->found));
	if (!g->found)
		return tsr_fail_nomem(err, r->c->path);
	TSR_TRY(tsr_gpu_alloc(g->gpu, place_planes(r, NULL, NULL), "the state", (void **)&g->state,
			      err));
	place_planes(r, g->planes, g->state);
	TSR_TRY(tsr_gpu_alloc(g->gpu, nreports * sizeof(*g->reports), "reports of steps",
			      (void **)&g->reports, err));
	TSR_TRY(make_buffers(g, err));
	TSR_TRY(check_room(g, err));
	TSR_TRY(tsr_gpu_stream_new(g->gpu, &g->copies, err));
	return tsr_gpu_stream_new(g->gpu, &g->steps, err);
}

void tsr_replay_gpu_close(struct tsr_replay_gpu *g)
{
	if (!g)
		return;
	tsr_gpu_stream_free(g->copies);
	tsr_gpu_stream_free(g->steps);
	for (unsigned i = 0; i < g->nbuffers; i++) {
		tsr_gpu_event_free(g->buffers[i].copied);
		tsr_gpu_event_free(g->buffers[i].done);
	}
	tsr_gpu_free(g->gpu, g->state);
	tsr_gpu_free(g->gpu, g->reports);
	tsr_gpu_free(g->gpu, g->device);
	tsr_gpu_free_host(g->gpu, g->host);
	tsr_gpu_close(g->gpu);
	pthread_mutex_destroy(&g->lock);
	free(g->planes);
	tsr_tiles_free(&g->tiles);
	free(g->found);
	free(g);
}

static enum tsr_status open_on(struct tsr_replaying *r, unsigned index, struct tsr_err *err)
{
	struct tsr_replay_gpu *g = calloc(1, sizeof(*g));
	enum tsr_status status;

	if (!g)
		return tsr_fail_nomem(err, r->c->path);
	pthread_mutex_init(&g->lock, NULL);
	status = tsr_gpu_open(index, &g->gpu, err);
	if (status == TSR_OK)
		status = take_memory(r, g, err);
	if (status != TSR_OK) {
		tsr_replay_gpu_close(g);
		return status;
	}
	r->gpu = g;
	r->result->gpu = (int)index;
	return TSR_OK;
}

enum tsr_status tsr_replay_gpu_open(struct tsr_replaying *r)
{
	const int asked = r->options->gpu;
	const uint64_t worth = WORTH_A_GPU * tsr_run_threads(r->run);
	struct tsr_err err;
	unsigned n;

	if (asked == TSR_REPLAY_CPU)
		return TSR_OK;
	if (asked >= 0)
		return open_on(r, (unsigned)asked, r->err);
	n = needs_cpu(r->options) || r->progress.total_nbytes < worth ? 0 : tsr_gpu_count();
	for (unsigned i = 0; i < n && !r->gpu; i++)
		(void)open_on(r, i, &err);
	return TSR_OK;
}

/* --- Buffers ------------------------------------------------------------------------------------ */

enum tsr_status tsr_replay_take_buffer(struct tsr_replay_gpu *g, struct tsr_replay_buffer **ret,
				       struct tsr_err *err)
{
	struct tsr_replay_buffer *best = NULL;
	bool wait;

	pthread_mutex_lock(&g->lock);
	for (unsigned i = 0; i < g->nbuffers; i++) {
		struct tsr_replay_buffer *b = &g->buffers[i];

		if (b->state == TSR_BUFFER_HELD)
			continue;
		if (!best || b->state == TSR_BUFFER_FREE ||
		    (best->state == TSR_BUFFER_IN_FLIGHT && b->ticket < best->ticket))
			best = b;
	}
	wait = best->state == TSR_BUFFER_IN_FLIGHT;
	best->state = TSR_BUFFER_HELD;
	pthread_mutex_unlock(&g->lock);
	*ret = best;
	return wait ? tsr_gpu_reach(best->done, err) : TSR_OK;
}

void tsr_replay_give_buffer(struct tsr_replay_gpu *g, struct tsr_replay_buffer *b,
			    enum tsr_replay_buffer_state state)
{
	pthread_mutex_lock(&g->lock);
	b->state = state;
	b->ticket = g->tickets++;
	pthread_mutex_unlock(&g->lock);
}

void tsr_replay_begin_pass(struct tsr_replay_gpu *g)
{
	for (unsigned i = 0; i < g->nbuffers; i++)
		g->buffers[i].state = TSR_BUFFER_FREE;
	g->next = 0;
}

/* --- Moving the state, plane by plane of each tile, by all threads ------------------------------- */

/* Planes of all parts of a parameter; each plane of each tile is a job. */
#define NPLANES (TSR_PARTS * TSR_PLANES_MAX)

/* Scratch memory of a job; nbytes is 0 if the codec lacks that plane. */
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
