/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps on a GPU.  Threads read gradients, piece by piece, into buffers; in the order of pieces
 * each is copied to the GPU in one stream and stepped with in another, while the next ones are
 * read.  A buffer comes back when the step with it is done.  What the steps noticed stays on the
 * GPU until the window of steps is over, with a report per piece and step.
 */
#include "ckpt/checkpoint_model.h"
#include "replay/gpu_buffers.h"

#include <stdlib.h>

#include "base/crc.h"
#include "base/fail.h"
#include "base/pipeline.h"
#include "gpu/gpu_work.h"

/* Elements of a gradient that are copied and stepped together, at most: 16 MiB of FP32. */
#define CHUNK ((uint64_t)TSR_REPLAY_ALIGN_MAX)

/*
 * Bytes of gradients per thread from which on a GPU is faster although it takes half a second to
 * start; measured with 16 threads (docs/performance.md, "Replays").
 */
#define WORTH_A_GPU (UINT64_C(1) << 29)

/* --- What is asked for ------------------------------------------------------------------------ */

static bool needs_cpu(const struct tsr_replay_options *o)
{
	return o->compare || o->check_numerics;
}

enum tsr_status tsr_replay_gpu_check(const struct tsr_replaying *r)
{
	if (r->options->gpu < 0 || !needs_cpu(r->options))
		return TSR_OK;
	return tsr_fail_hint(r->err, TSR_E_USAGE, TSR_HINT_CPU, "cuda:%d: %s only runs on the CPU",
			     r->options->gpu,
			     r->options->compare ? "comparing with FP32" : "checking numerics");
}

/* --- Memory on the GPU -------------------------------------------------------------------------- */

static uint64_t chunk_of(const struct tsr_replay_param *p)
{
	return p->piece < CHUNK ? CHUNK / p->piece * p->piece : p->piece;
}

static uint64_t align_up(uint64_t nbytes)
{
	return (nbytes + 255) / 256 * 256;
}

/* Places of all planes, from @state on; returns how far they go.  NULL: only that. */
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

/* Where chunks begin; returns the elements of the longest. */
static uint64_t place_chunks(const struct tsr_replaying *r, uint64_t *start)
{
	uint64_t longest = 0;

	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];
		const uint64_t chunk = chunk_of(p), n = chunk < p->numel ? chunk : p->numel;

		longest = n > longest ? n : longest;
		start[i + 1] = start[i] + (p->numel ? (p->numel - 1) / chunk + 1 : 1);
	}
	return longest;
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

/* Steps that no one kernel does take memory when they begin; whether there is shows now. */
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

	g->planes = calloc(r->nparams + 1, sizeof(*g->planes));
	g->start = calloc(r->nparams + 1, sizeof(*g->start));
	if (!g->planes || !g->start)
		return tsr_fail_nomem(err, r->c->path);
	g->run.threads = threads < TSR_REPLAY_READERS_MAX ? threads : TSR_REPLAY_READERS_MAX;
	g->nbuffers = g->run.threads + TSR_PIPELINE_WAITING + TSR_REPLAY_IN_FLIGHT;
	g->buffer_nbytes = align_up(place_chunks(r, g->start) * sizeof(float) + 1);
	nreports = g->start[r->nparams] * TSR_REPLAY_WINDOW + 1;
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
	free(g->start);
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
	n = needs_cpu(r->options) || r->total_nbytes < worth ? 0 : tsr_gpu_count();
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
		    (best->state == TSR_BUFFER_ON_ITS_WAY && b->ticket < best->ticket))
			best = b;
	}
	wait = best->state == TSR_BUFFER_ON_ITS_WAY;
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

/* --- Steps ------------------------------------------------------------------------------------- */

/* One thread's job: a chunk at one step. */
struct step_job {
	size_t param;
	unsigned step;
	uint64_t first;
	size_t n;
	const struct tsr_array *grad; /* NULL: the step is skipped, or has none */
	struct tsr_replay_buffer *buffer;
	size_t nbytes;
	uint32_t crc; /* of these, where the file has a checksum */
};

static struct step_job locate(const struct tsr_replay_window *w, uint64_t job)
{
	const struct tsr_replaying *r = w->r;
	const uint64_t *start = r->gpu->start, chunk = job / w->n;
	struct step_job j = { .step = (unsigned)(job % w->n) };
	size_t low = 0, high = r->nparams - 1;
	const struct tsr_replay_param *p;
	uint64_t left;

	while (low < high) {
		const size_t mid = low + (high - low + 1) / 2;

		if (start[mid] <= chunk)
			low = mid;
		else
			high = mid - 1;
	}
	p = &r->params[low];
	j.param = low;
	j.first = (chunk - start[low]) * chunk_of(p);
	left = p->numel - j.first;
	j.n = (size_t)(left < chunk_of(p) ? left : chunk_of(p));
	j.grad = tsr_replay_grad(w, j.step, low);
	return j;
}

static enum tsr_status read_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_replay_window *w = ctx;
	struct step_job *j = scratch;
	enum tsr_status status;

	*j = locate(w, job);
	if (!j->grad)
		return TSR_OK;
	j->nbytes = tsr_replay_grad_nbytes(j->grad, j->n);
	TSR_TRY(tsr_replay_take_buffer(w->r->gpu, &j->buffer, err));
	status = tsr_array_read(w->steps[j->step], j->grad,
				j->first * tsr_replay_grad_nbytes(j->grad, 1), j->nbytes,
				j->buffer->host, err);
	if (status == TSR_OK && tsr_array_is_streamed(j->grad))
		j->crc = tsr_crc32(0, j->buffer->host, j->nbytes);
	if (status != TSR_OK)
		tsr_replay_give_buffer(w->r->gpu, j->buffer, TSR_BUFFER_FREE);
	return status;
}

/* Copy the gradient to the GPU and step with it, when it is there. */
static enum tsr_status append_step(const struct tsr_replay_window *w, const struct step_job *j,
				   uint64_t job, struct tsr_err *err)
{
	struct tsr_replay_gpu *g = w->r->gpu;
	struct tsr_replay_buffer *b = j->buffer;
	struct tsr_step step = tsr_replay_make_step(w, j->step, j->param);

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
			step.plane[part][i] = g->planes[j->param].plane[part][i];
	}
	step = tsr_replay_step_at(&step, j->first);
	if (j->n) {
		TSR_TRY(tsr_gpu_put(g->copies, b->device, b->host, j->nbytes, err));
		TSR_TRY(tsr_gpu_record(g->copies, b->copied, err));
		TSR_TRY(tsr_gpu_wait(g->steps, b->copied, err));
		TSR_TRY(tsr_gpu_step(g->steps, &step, b->device, j->n, &g->reports[job], err));
	}
	TSR_TRY(tsr_gpu_record(g->steps, b->done, err));
	tsr_replay_give_buffer(g, b, TSR_BUFFER_ON_ITS_WAY);
	return TSR_OK;
}

static enum tsr_status commit_grad(struct tsr_replay_window *w, const struct step_job *j,
				   uint64_t job, struct tsr_err *err)
{
	const bool last = j->first + j->n == w->r->params[j->param].numel;

	TSR_TRY(append_step(w, j, job, err));
	w->r->result->grad_nbytes += j->nbytes;
	w->r->done_nbytes += j->nbytes;
	return tsr_replay_commit_record(w, j->step, j->grad, j->first == 0, last, j->crc, j->nbytes,
					err);
}

static enum tsr_status step_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct tsr_replay_window *w = ctx;
	const struct step_job *j = scratch;
	const struct tsr_run *run = w->r->run;

	/* Nothing is appended behind a job that failed. */
	if (job != w->r->gpu->next)
		return TSR_OK;
	if (j->grad)
		TSR_TRY(commit_grad(w, j, job, err));
	w->r->gpu->next++;
	if (run && run->progress && !run->progress(run->ctx, w->r->done_nbytes, w->r->total_nbytes))
		return tsr_fail(err, TSR_E_CANCELLED, "%s: cancelled", w->r->recording->path);
	return TSR_OK;
}

/* --- What the steps noticed --------------------------------------------------------------------- */

static enum tsr_status fetch_reports(struct tsr_replay_gpu *g, uint64_t n, struct tsr_err *err)
{
	if (n)
		TSR_TRY(tsr_gpu_get(g->steps, g->found, g->reports, n * sizeof(*g->found), err));
	return tsr_gpu_sync(g->steps, err);
}

/* The first complaint in the order of jobs, as on the CPU. */
static enum tsr_status judge_reports(struct tsr_replay_window *w, uint64_t n, struct tsr_err *err)
{
	for (uint64_t job = 0; job < n; job++) {
		const struct tsr_step_report *report = &w->r->gpu->found[job];
		const struct step_job j = locate(w, job);

		if (report->nonfinite_grad) {
			w->nonfinite = true;
			return tsr_fail(err, TSR_E_FORMAT, "%s: non-finite gradient",
					w->steps[j.step]->path);
		}
		TSR_TRY(tsr_replay_check_range(w, j.step, &w->r->params[j.param], report, err));
	}
	return TSR_OK;
}

/*
 * @status is that of the pipeline.  If it failed, what was noticed before that job comes first: a
 * damaged file often has gradients that are not finite.
 */
static enum tsr_status settle(struct tsr_replay_window *w, enum tsr_status status)
{
	struct tsr_replay_gpu *g = w->r->gpu;
	struct tsr_err err;
	enum tsr_status noticed;

	if (status == TSR_E_CANCELLED)
		return status;
	/* A job that was appended and then failed counts, too. */
	if (status != TSR_OK && g->next < g->start[w->r->nparams] * w->n)
		g->next++;
	noticed = fetch_reports(g, g->next, &err);
	if (noticed == TSR_OK)
		noticed = judge_reports(w, g->next, &err);
	else if (status != TSR_OK)
		return status;
	if (noticed == TSR_OK)
		return status;
	*w->r->err = err;
	return noticed;
}

enum tsr_status tsr_replay_gpu_window(struct tsr_replay_window *w)
{
	struct tsr_replay_gpu *g = w->r->gpu;
	const struct tsr_pipeline pipeline = { .njobs = g->start[w->r->nparams] * w->n,
					       .scratch_nbytes = sizeof(struct step_job),
					       .work = read_work,
					       .commit = step_commit,
					       .ctx = w };

	tsr_replay_begin_pass(g);
	TSR_TRY(tsr_gpu_zero(g->steps, g->reports, pipeline.njobs * sizeof(*g->reports),
			     w->r->err));
	return settle(w, tsr_pipeline_run(&pipeline, &g->run, w->r->err));
}
