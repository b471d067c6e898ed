/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay has on a GPU: the state, and buffers by which bytes get there and back. */
#include "replay/gpu/gpu_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "step/hyperparameters.h"

/* The most elements of a tile on a GPU: 16 MiB of FP32. */
#define GPU_TILE TSR_REPLAY_ALIGN_MAX

/*
 * With at least so many bytes of gradients per thread a GPU is faster, though it takes half a second
 * to start; measured with 16 threads (docs/performance.md, "Replays").  Steps on FP32 cost a CPU little
 * beside reading gradients, which a GPU waits for as well; comparisons cost it much more.
 */
#define WORTH_A_GPU (UINT64_C(1) << 29)
#define WORTH_A_GPU_FP32 (UINT64_C(1) << 33)
#define WORTH_A_GPU_COMPARE (UINT64_C(1) << 26)
#define WORTH_A_GPU_MATRIX \
	(UINT64_C(1) << 23) /* a step of matrices multiplies them fifteen times */

/* --- What is asked for ------------------------------------------------------------------------ */

static bool needs_cpu(const struct tsr_replay_options *o)
{
	return o->check_numerics || o->each_step || o->state_dir;
}

enum tsr_status tsr_replay_gpu_check(const struct tsr_replaying *r)
{
	if (r->options->gpu < 0 || !needs_cpu(r->options))
		return TSR_OK;
	return tsr_fail_hint(r->err, TSR_E_USAGE, TSR_HINT_CPU, "cuda:%d: %s only runs on the CPU",
			     r->options->gpu,
			     r->options->compare     ? "comparing with FP32"
			     : r->options->state_dir ? "a state on disk"
			     : r->options->each_step ? "looking at each step"
						     : "checking numerics");
}

/* --- Memory on the GPU -------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t nbytes)
{
	return (nbytes + 255) / 256 * 256;
}

/* Memory that is handed out piece by piece; counted only, if @base is NULL. */
struct placing {
	unsigned char *base;
	uint64_t at;
};

static void *place(struct placing *p, uint64_t nbytes)
{
	void *ret = p->base ? p->base + p->at : NULL;

	p->at += align_up(nbytes);
	return ret;
}

/* Place all planes of a state; returns how many bytes they take. */
static uint64_t place_planes(const struct tsr_replaying *r, struct tsr_replay_planes *planes,
			     unsigned char *memory)
{
	struct placing at = { memory, 0 };

	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];

		for (unsigned part = 0; part < TSR_PARTS; part++) {
			const struct tsr_coding *coding = &p->coding[part];

			for (unsigned k = 0; coding->codec && k < coding->codec->nplanes; k++)
				planes[i].plane[part][k] = place(
					&at, tsr_plane_nbytes(coding, k, p->numel));
			if (p->coding[part].codec && r->options->compare)
				planes[i].fp32[part] = place(&at, p->numel * sizeof(float));
		}
	}
	return at.at;
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

/*
 * Steps that are compared, of matrices, or without a fused kernel allocate memory when they begin; check
 * that they can.
 */
static enum tsr_status check_room(const struct tsr_replaying *r, const struct tsr_replay_gpu *g,
				  struct tsr_err *err)
{
	const uint64_t arrays = TSR_PARTS + (r->options->compare ? TSR_COMPARE_ARRAYS : 0);
	const uint64_t nbytes = tsr_replay_matrix_work(r) * sizeof(float);
	void *memory;

	TSR_TRY(tsr_gpu_alloc(g->gpu, arrays * g->buffer_nbytes + nbytes, "elements in FP32",
			      &memory, err));
	tsr_gpu_free(g->gpu, memory);
	return TSR_OK;
}

/* Steps whose reports are kept at once; a comparison is fetched after each. */
static uint64_t window_of(const struct tsr_replaying *r)
{
	return r->options->compare ? 1 : TSR_REPLAY_WINDOW;
}

static enum tsr_status take_sums(const struct tsr_replaying *r, struct tsr_replay_gpu *g,
				 struct tsr_replay_gpu_state *s, struct tsr_err *err)
{
	if (!r->options->compare)
		return TSR_OK;
	s->compared = calloc(r->nparams + 1, sizeof(*s->compared));
	if (!s->compared)
		return tsr_fail_nomem(err, r->c->path);
	return tsr_gpu_alloc(g->gpu, (r->nparams + 1) * sizeof(*s->sums), "sums of a comparison",
			     (void **)&s->sums, err);
}

static enum tsr_status take_state(const struct tsr_replaying *r, struct tsr_replay_gpu *g,
				  struct tsr_replay_gpu_state *s, struct tsr_err *err)
{
	const uint64_t nreports = g->tiles.njobs * window_of(r) + 1;

	s->planes = calloc(r->nparams + 1, sizeof(*s->planes));
	s->found = calloc(nreports, sizeof(*s->found));
	if (!s->planes || !s->found)
		return tsr_fail_nomem(err, r->c->path);
	TSR_TRY(tsr_gpu_alloc(g->gpu, place_planes(r, s->planes, NULL), "the state",
			      (void **)&s->memory, err));
	place_planes(r, s->planes, s->memory);
	TSR_TRY(tsr_gpu_alloc(g->gpu, nreports * sizeof(*s->reports), "reports of steps",
			      (void **)&s->reports, err));
	return take_sums(r, g, s, err);
}

static enum tsr_status take_memory(struct tsr_replaying *first, struct tsr_replay_gpu *g,
				   struct tsr_err *err)
{
	const unsigned threads = tsr_run_threads(first->run);
	struct tsr_replay_gpu_state *s;
	size_t longest;

	TSR_TRY(tsr_replay_cut(first, GPU_TILE, &g->tiles, &longest));
	for (const struct tsr_replaying *r = first; r; r = r->also)
		g->nstates++;
	s = g->states = calloc(g->nstates, sizeof(*g->states));
	if (!s)
		return tsr_fail_nomem(err, first->c->path);
	for (const struct tsr_replaying *r = first; r; r = r->also)
		TSR_TRY(take_state(r, g, s++, err));
	g->run.threads = threads < TSR_REPLAY_READERS_MAX ? threads : TSR_REPLAY_READERS_MAX;
	g->nbuffers = g->run.threads + TSR_PIPELINE_WAITING + TSR_REPLAY_IN_FLIGHT;
	g->buffer_nbytes = align_up(longest * sizeof(float) + 1);
	TSR_TRY(make_buffers(g, err));
	TSR_TRY(check_room(first, g, err));
	TSR_TRY(tsr_gpu_stream_new(g->gpu, &g->copies, err));
	return tsr_gpu_stream_new(g->gpu, &g->steps, err);
}

static void free_state(struct tsr_replay_gpu *g, struct tsr_replay_gpu_state *s)
{
	tsr_gpu_free(g->gpu, s->memory);
	tsr_gpu_free(g->gpu, s->reports);
	tsr_gpu_free(g->gpu, s->sums);
	free(s->planes);
	free(s->found);
	free(s->compared);
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
	for (unsigned i = 0; g->states && i < g->nstates; i++)
		free_state(g, &g->states[i]);
	tsr_gpu_free(g->gpu, g->device);
	tsr_gpu_free_host(g->gpu, g->host);
	tsr_gpu_close(g->gpu);
	pthread_mutex_destroy(&g->lock);
	free(g->states);
	tsr_tiles_free(&g->tiles);
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
	for (; r; r = r->also)
		r->result->gpu = (int)index;
	return TSR_OK;
}

static bool is_fp32(const struct tsr_replaying *r)
{
	bool fp32 = true;

	for (size_t i = 0; i < r->nparams && fp32; i++) {
		for (unsigned part = 0; part < TSR_PARTS; part++) {
			const struct tsr_coding *coding = &r->params[i].coding[part];

			fp32 &= !coding->codec || tsr_replay_is_f32(coding);
		}
	}
	return fp32;
}

/* How many bytes of gradients are worth the start of a GPU. */
static uint64_t worth_of(const struct tsr_replaying *r)
{
	const uint64_t each = tsr_optimizer_is_muon(r->result->optimizer) ? WORTH_A_GPU_MATRIX
			      : r->options->compare			  ? WORTH_A_GPU_COMPARE
			      : is_fp32(r)				  ? WORTH_A_GPU_FP32
									  : WORTH_A_GPU;

	return each * tsr_run_threads(r->run);
}

enum tsr_status tsr_replay_gpu_open(struct tsr_replaying *r)
{
	const int asked = r->options->gpu;
	const uint64_t worth = worth_of(r);
	struct tsr_err err;
	unsigned n;

	if (asked == TSR_REPLAY_CPU || (r->run && r->run->parts))
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

/* What a parameter has in memory: planes of all parts, then its replay in FP32.  Each is a job per tile. */
#define NPLANES (TSR_PARTS * TSR_PLANES_MAX)
#define NARRAYS (NPLANES + TSR_PARTS)

/* Scratch memory of a job; nbytes is 0 if there is no such array. */
struct move_job {
	struct tsr_replay_buffer *buffer;
	unsigned char *host, *device;
	size_t nbytes;
};

static void locate_plane(struct move_job *j, const struct tsr_replay_param *p,
			 const struct tsr_replay_planes *at, const struct tsr_tile *tile,
			 unsigned slot)
{
	const unsigned part = slot / TSR_PLANES_MAX, i = slot % TSR_PLANES_MAX;
	const struct tsr_coding *coding = &p->coding[part];
	uint64_t first;

	if (!coding->codec || i >= coding->codec->nplanes)
		return;
	first = tsr_plane_nbytes(coding, i, tile->first);
	j->host = p->plane[part][i] + first;
	j->device = at->plane[part][i] + first;
	j->nbytes = (size_t)tsr_plane_nbytes(coding, i, tile->n);
}

static void locate_fp32(struct move_job *j, const struct tsr_replay_param *p,
			const struct tsr_replay_planes *at, const struct tsr_tile *tile,
			unsigned part)
{
	if (!at->fp32[part])
		return;
	j->host = (unsigned char *)(p->fp32[part] + tile->first);
	j->device = (unsigned char *)(at->fp32[part] + tile->first);
	j->nbytes = tile->n * sizeof(float);
}

static enum tsr_status begin_move(const struct tsr_replaying *r, struct move_job *j, uint64_t job,
				  struct tsr_err *err)
{
	struct tsr_replay_gpu *g = r->gpu;
	const unsigned slot = (unsigned)(job % NARRAYS);
	const struct tsr_tile tile = tsr_tiles_get(&g->tiles, job / NARRAYS % g->tiles.njobs);
	unsigned state = (unsigned)(job / NARRAYS / g->tiles.njobs);
	const struct tsr_replay_planes *at = &g->states[state].planes[tile.tensor];

	while (state--)
		r = r->also;
	*j = (struct move_job){ .nbytes = 0 };
	if (slot < NPLANES)
		locate_plane(j, &r->params[tile.tensor], at, &tile, slot);
	else
		locate_fp32(j, &r->params[tile.tensor], at, &tile, slot - NPLANES);
	return j->nbytes ? tsr_replay_take_buffer(g, &j->buffer, err) : TSR_OK;
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
	pipeline.njobs = r->gpu->nstates * r->gpu->tiles.njobs * NARRAYS;
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
