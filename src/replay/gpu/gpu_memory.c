/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay has on GPUs: the state, and buffers by which bytes get there and back. */
#include "replay/gpu/gpu_memory.h"

#include "base/fail.h"
#include "base/pipeline.h"
#include "step/hyperparameters.h"

/* The most elements of a tile on a GPU: 16 MiB of FP32. */
#define GPU_TILE TSR_REPLAY_ALIGN_MAX

/*
 * With at least so many bytes of gradients per thread a GPU is faster, though it takes half a second
 * to start; measured with 16 threads (performance.md, "Replays").  Steps on FP32 cost a CPU little
 * beside reading gradients, which a GPU waits for as well; comparisons cost it much more.
 */
#define WORTH_A_GPU (UINT64_C(1) << 29)
#define WORTH_A_GPU_FP32 (UINT64_C(1) << 33)
#define WORTH_A_GPU_COMPARE (UINT64_C(1) << 26)
#define WORTH_A_GPU_MATRIX \
	(UINT64_C(1) << 23) /* a step of matrices multiplies them fifteen times */

/* --- What is asked for ------------------------------------------------------------------------ */

static bool needs_cpu(const struct tsr_replaying *r)
{
	const struct tsr_replay_options *o = r->options;

	return o->check_numerics || tsr_replay_looks(o) || o->state_dir ||
	       r->result->optimizer == TSR_OPTIMIZER_SOAP;
}

enum tsr_status tsr_replay_gpu_check(const struct tsr_replaying *r)
{
	if (r->options->ngpus <= 0 || !needs_cpu(r))
		return TSR_OK;
	return tsr_fail_hint(r->err, TSR_E_USAGE, TSR_HINT_CPU, "cuda:%u: %s only runs on the CPU",
			     r->options->gpus[0],
			     r->options->state_dir	    ? "a state on disk"
			     : tsr_replay_looks(r->options) ? "looking at each step"
			     : r->options->check_numerics   ? "checking numerics"
							    : "soap");
}

/* --- Memory on GPUs -------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t nbytes)
{
	return (nbytes + 255) / 256 * 256;
}

/*
 * Place the arrays of all tiles of a state that a GPU has, from @memory on; returns how many bytes they take.
 * NULL: they are only counted.
 */
static uint64_t place_arrays(const struct tsr_replaying *r, const struct tsr_replay_gpus *gpus,
			     const struct tsr_replay_gpu *g, struct tsr_replay_on_gpu *tiles,
			     unsigned char *memory)
{
	uint64_t at = 0;

	for (uint64_t k = 0; k < gpus->tiles.njobs; k++) {
		const struct tsr_tile tile = tsr_tiles_get(&gpus->tiles, k);
		const struct tsr_replay_param *p = &r->params[tile.tensor];

		for (unsigned i = 0; i < TSR_REPLAY_ARRAYS && tsr_replay_owner(gpus, k) == g; i++) {
			if (!tsr_replay_has_array(r, p, i))
				continue;
			tiles[k].array[i] = memory ? memory + at : NULL;
			at += align_up(tsr_replay_array_nbytes(p, i, tile.n));
		}
	}
	return at;
}

static enum tsr_status make_buffers(const struct tsr_replay_gpus *gpus, struct tsr_replay_gpu *g,
				    struct tsr_err *err)
{
	const unsigned in_flight = gpus->n > 1 ? TSR_REPLAY_IN_FLIGHT_OF_SEVERAL
					       : TSR_REPLAY_IN_FLIGHT;
	const unsigned n = gpus->run.threads + TSR_PIPELINE_WAITING + in_flight;
	const uint64_t nbytes = n * gpus->buffer_nbytes;

	TSR_TRY(TSR_NEW(&g->buffers, n, err, gpus->first->c->path));
	g->nbuffers = n;
	TSR_TRY(tsr_gpu_alloc(g->gpu, nbytes, "gradients", (void **)&g->device, err));
	TSR_TRY(tsr_gpu_alloc_host(g->gpu, nbytes, "gradients, in host memory", (void **)&g->host,
				   err));
	for (unsigned i = 0; i < n; i++) {
		struct tsr_replay_buffer *b = &g->buffers[i];

		b->host = g->host + i * gpus->buffer_nbytes;
		b->device = g->device + i * gpus->buffer_nbytes;
		TSR_TRY(tsr_gpu_event_new(g->gpu, &b->copied, err));
		TSR_TRY(tsr_gpu_event_new(g->gpu, &b->done, err));
	}
	return TSR_OK;
}

/*
 * Steps that are compared, of matrices, or without a fused kernel allocate memory when they begin; check
 * that they can.
 */
static enum tsr_status check_room(const struct tsr_replay_gpus *gpus, struct tsr_replay_gpu *g,
				  struct tsr_err *err)
{
	const struct tsr_replaying *r = gpus->first;
	const uint64_t arrays = TSR_SLOTS + (r->options->compare ? TSR_COMPARE_ARRAYS : 0);
	const uint64_t nbytes = tsr_replay_matrix_work(r) * sizeof(float);
	void *memory;

	TSR_TRY(tsr_gpu_alloc(g->gpu, arrays * gpus->buffer_nbytes + nbytes, "elements in FP32",
			      &memory, err));
	tsr_gpu_free(g->gpu, memory);
	return TSR_OK;
}

static enum tsr_status take_state(const struct tsr_replaying *r, const struct tsr_replay_gpus *gpus,
				  struct tsr_replay_gpu *g, struct tsr_replay_gpu_state *s,
				  struct tsr_err *err)
{
	/* Reports of the steps of a window are kept at once; a comparison is fetched after each. */
	const uint64_t nsteps = r->options->compare ? 1 : TSR_REPLAY_WINDOW;
	const uint64_t nreports = gpus->tiles.njobs * nsteps + 1;

	TSR_TRY(TSR_NEW(&s->tiles, gpus->tiles.njobs + 1, err, r->c->path));
	TSR_TRY(TSR_NEW(&s->found, nreports, err, r->c->path));
	TSR_TRY(tsr_gpu_alloc(g->gpu, place_arrays(r, gpus, g, s->tiles, NULL), "the state",
			      (void **)&s->memory, err));
	place_arrays(r, gpus, g, s->tiles, s->memory);
	TSR_TRY(tsr_gpu_alloc(g->gpu, nreports * sizeof(*s->reports), "reports of steps",
			      (void **)&s->reports, err));
	if (!r->options->compare)
		return TSR_OK;
	TSR_TRY(TSR_NEW(&s->compared, r->nparams + 1, err, r->c->path));
	return tsr_gpu_alloc(g->gpu, (r->nparams + 1) * sizeof(*s->sums), "sums of a comparison",
			     (void **)&s->sums, err);
}

/* Open a GPU, and take all memory on it. */
static enum tsr_status take_gpu(const struct tsr_replay_gpus *gpus, struct tsr_replay_gpu *g,
				struct tsr_err *err)
{
	struct tsr_replay_gpu_state *s;

	TSR_TRY(tsr_gpu_open(g->index, &g->gpu, err));
	s = g->states = calloc(gpus->nstates, sizeof(*g->states));
	if (!s)
		return tsr_fail_nomem(err, gpus->first->c->path);
	for (const struct tsr_replaying *r = gpus->first; r; r = r->also)
		TSR_TRY(take_state(r, gpus, g, s++, err));
	TSR_TRY(make_buffers(gpus, g, err));
	TSR_TRY(check_room(gpus, g, err));
	TSR_TRY(tsr_gpu_stream_new(g->gpu, &g->copies, err));
	return tsr_gpu_stream_new(g->gpu, &g->steps, err);
}

static enum tsr_status take_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct tsr_replay_gpus *gpus = ctx;

	(void)scratch;
	return take_gpu(gpus, &gpus->each[job], err);
}

static void free_state(struct tsr_replay_gpu *g, struct tsr_replay_gpu_state *s)
{
	tsr_gpu_free(g->gpu, s->memory);
	tsr_gpu_free(g->gpu, s->reports);
	tsr_gpu_free(g->gpu, s->sums);
	free(s->tiles);
	free(s->found);
	free(s->compared);
}

static void leave_gpu(const struct tsr_replay_gpus *gpus, struct tsr_replay_gpu *g)
{
	tsr_gpu_stream_free(g->copies);
	tsr_gpu_stream_free(g->steps);
	for (unsigned i = 0; i < g->nbuffers; i++) {
		tsr_gpu_event_free(g->buffers[i].copied);
		tsr_gpu_event_free(g->buffers[i].done);
	}
	for (unsigned i = 0; g->states && i < gpus->nstates; i++)
		free_state(g, &g->states[i]);
	tsr_gpu_free(g->gpu, g->device);
	tsr_gpu_free_host(g->gpu, g->host);
	tsr_gpu_close(g->gpu);
	pthread_mutex_destroy(&g->lock);
	free(g->buffers);
	free(g->states);
}

void tsr_replay_gpu_close(struct tsr_replay_gpus *gpus)
{
	if (!gpus)
		return;
	for (unsigned i = 0; i < gpus->n; i++)
		leave_gpu(gpus, &gpus->each[i]);
	tsr_tiles_free(&gpus->tiles);
	free(gpus->owner);
	free(gpus);
}

/* --- Which GPUs, and which of them has what --------------------------------------------------- */

/* How many threads read, and what: tiles are shorter on several GPUs, whose buffers are more. */
static enum tsr_status plan_gpus(struct tsr_replay_gpus *gpus)
{
	struct tsr_replaying *first = gpus->first;
	const unsigned threads = tsr_run_threads(first->run),
		       most = gpus->n * TSR_REPLAY_READERS_MAX;
	size_t longest;

	for (const struct tsr_replaying *r = first; r; r = r->also)
		gpus->nstates++;
	gpus->run.threads = threads < most ? threads : most;
	TSR_TRY(tsr_replay_cut(first, gpus->n > 1 ? GPU_TILE / 2 : GPU_TILE, &gpus->tiles,
			       &longest));
	gpus->buffer_nbytes = align_up(longest * sizeof(float) + 1);
	/*
	 * Each tile goes to the GPU that has the fewest elements so far, so that in the order of jobs they
	 * take turns.  Sums of a comparison are added from the start of a parameter to its end: there all
	 * tiles of a parameter go to one.
	 */
	TSR_TRY(TSR_NEW(&gpus->owner, gpus->tiles.njobs + 1, first->err, first->c->path));
	for (uint64_t i = 0; i < gpus->tiles.njobs; i++) {
		const struct tsr_tile tile = tsr_tiles_get(&gpus->tiles, i);
		unsigned best = 0;

		for (unsigned k = 1; k < gpus->n; k++)
			best = gpus->each[k].numel < gpus->each[best].numel ? k : best;
		if (tile.first && first->options->compare)
			best = gpus->owner[i - 1];
		gpus->owner[i] = best;
		gpus->each[best].numel += tile.n;
	}
	return TSR_OK;
}

/* All states are stepped on the same GPUs. */
static enum tsr_status note_gpus(const struct tsr_replay_gpus *gpus, struct tsr_err *err)
{
	for (struct tsr_replaying *r = gpus->first; r; r = r->also) {
		TSR_TRY(TSR_TAKE(&r->result->gpus, gpus->n, r->result->arena, err, r->c->path));
		for (unsigned i = 0; i < gpus->n; i++)
			r->result->gpus[i] = gpus->each[i].index;
		r->result->ngpus = gpus->n;
	}
	return TSR_OK;
}

static enum tsr_status open_on(struct tsr_replaying *r, const unsigned *indices, unsigned n,
			       struct tsr_err *err)
{
	struct tsr_replay_gpus *gpus = calloc(1, sizeof(*gpus) + n * sizeof(*gpus->each));
	const struct tsr_pipeline pipeline = { .njobs = n, .work = take_work, .ctx = gpus };
	const struct tsr_run at_once = { .threads = n };
	enum tsr_status status;

	if (!gpus)
		return tsr_fail_nomem(err, r->c->path);
	gpus->first = r;
	gpus->each = (void *)(gpus + 1);
	for (; gpus->n < n; gpus->n++) {
		gpus->each[gpus->n].index = indices[gpus->n];
		pthread_mutex_init(&gpus->each[gpus->n].lock, NULL);
	}
	status = plan_gpus(gpus);
	TSR_THEN(status, tsr_pipeline_run(&pipeline, &at_once, err));
	TSR_THEN(status, note_gpus(gpus, err));
	return TSR_MADE(status, &r->gpus, gpus, tsr_replay_gpu_close);
}

/* How many bytes of gradients are worth the start of a GPU. */
static uint64_t worth_of(const struct tsr_replaying *r)
{
	const uint64_t each = tsr_optimizer_is_muon(r->result->optimizer)     ? WORTH_A_GPU_MATRIX
			      : r->options->compare			      ? WORTH_A_GPU_COMPARE
			      : tsr_replay_check_plain(r, "", NULL) == TSR_OK ? WORTH_A_GPU_FP32
									      : WORTH_A_GPU;

	return each * tsr_run_threads(r->run);
}

enum tsr_status tsr_replay_gpu_open(struct tsr_replaying *r)
{
	const int asked = r->options->ngpus;
	const uint64_t worth = worth_of(r);
	struct tsr_err err;
	unsigned n;

	if (asked == TSR_REPLAY_CPU || (r->run && r->run->parts))
		return TSR_OK;
	if (asked > 0)
		return open_on(r, r->options->gpus, (unsigned)asked, r->err);
	n = needs_cpu(r) || r->progress.total_nbytes < worth ? 0 : tsr_gpu_count();
	for (unsigned i = 0; i < n && !r->gpus; i++)
		(void)open_on(r, &i, 1, &err);
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

void tsr_replay_begin_pass(struct tsr_replay_gpus *gpus)
{
	for (unsigned k = 0; k < gpus->n; k++) {
		struct tsr_replay_gpu *g = &gpus->each[k];

		for (unsigned i = 0; i < g->nbuffers; i++)
			g->buffers[i].state = TSR_BUFFER_FREE;
	}
	gpus->next = 0;
}
