/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All steps of a replay.  Elements do not depend on each other, so a job on the CPU takes a tile of
 * one parameter through all steps of a window while the tile is in the cache: the state passes
 * through memory once per window, and only gradients are read meanwhile.
 */
#include "replay/stepping.h"

#include <math.h>

#include "base/grow.h"
#include "base/pipeline.h"
#include "replay/compare_fp32.h"
#include "replay/gpu/gpu_steps.h"
#include "replay/replay_parts.h"

/* Memory for tiles that wait for their turn. */
#define WAITING_NBYTES ((size_t)64 << 20)

struct stepping {
	struct tsr_replay_window w;
	size_t scratch_nbytes; /* of a job */
	size_t nwork; /* floats that a step of a matrix uses */
	float largest[TSR_REPLAY_WINDOW]; /* weight of the parameter being committed, per step */
	bool *warned; /* per parameter */
	unsigned nstates; /* of w.r and those that also take its steps */
	struct tsr_replay_sums *sums; /* of each; NULL: comparing was not asked for */
};

/* What was counted in a tile at one step; comparisons follow those of all steps. */
struct found {
	uint32_t crc; /* of the gradient, where the file has a checksum */
	float largest; /* magnitude of weights before the step, if it is asked for */
};

/* Scratch memory of a job. */
struct scratch {
	struct tsr_tile tile;
	float *work; /* for a step of a matrix, behind the arrays */
	struct found *found; /* of each step; behind that */
	struct tsr_compare *compare; /* of each step and state; behind that */
	_Alignas(64) float x[]; /* arrays of r->longest elements; the second has the gradient */
};

/* How many arrays that are. */
static size_t arrays(const struct stepping *k)
{
	return k->sums ? 2 + TSR_COMPARE_ARRAYS : 2;
}

/* --- Updates that are too small ---------------------------------------------------------------- */

/* Significand bits behind the point, and exponents of finite numbers. */
struct format {
	int bits, least, most;
};

/*
 * The distance between the values of a weight codec next to @magnitude; tersor-replay(1) has
 * the table.  Infinite if it cannot hold @magnitude.
 */
static double spacing(const struct tsr_codec *codec, float magnitude)
{
	static const struct format bf16 = { 7, -126, 127 }, fp16 = { 10, -14, 15 },
				   e5m2 = { 2, -14, 15 }, e4m3 = { 3, -6, 8 },
				   fp32 = { 23, -126, 127 };
	const struct format *f = codec->narrow == TSR_BF16	? &bf16
				 : codec->narrow == TSR_F16	? &fp16
				 : codec->narrow == TSR_F8_E5M2 ? &e5m2
				 : codec->narrow == TSR_F8_E4M3 ? &e4m3
								: &fp32;
	double narrow, finest;
	int exponent;

	if (!(fabsf(magnitude) < INFINITY))
		return INFINITY;
	exponent = magnitude == 0 ? fp32.least : ilogb((double)magnitude);
	if (exponent > f->most)
		return INFINITY;
	narrow = ldexp(1, (exponent > f->least ? exponent : f->least) - f->bits);
	/* No codec distinguishes more values than FP32. */
	finest = ldexp(1, (exponent > fp32.least ? exponent : fp32.least) - fp32.bits);
	return fmax(narrow / codec->parts, fmax(codec->finest, finest));
}

/* Whether an update of the size of @lr is too small to move the largest weight. */
static bool is_stalled(const struct tsr_codec *codec, float largest, double lr)
{
	return lr > 0 && largest > 0 && lr < spacing(codec, largest) / 2;
}

/* The largest weight before the step. */
static float largest_weight(const struct tsr_step *at, size_t n, float *x)
{
	const struct tsr_coding *coding = &at->coding[TSR_SLOT_WEIGHT];
	float most;

	coding->codec->decode(coding, (const void *const *)at->plane[TSR_SLOT_WEIGHT], n, x);
	most = 0;
	for (size_t i = 0; i < n; i++) {
		const float magnitude = x[i] < 0 ? -x[i] : x[i];

		most = magnitude > most ? magnitude : most;
	}
	return most;
}

static enum tsr_status warn_of(struct stepping *k, size_t param, unsigned step, float largest,
			       struct tsr_err *err)
{
	struct tsr_replay *result = k->w.r->result;
	const struct tsr_replay_param *p = &k->w.r->params[param];
	const struct tsr_replay_step *s = tsr_replay_step_of(&k->w, step);
	const double lr = s->lr[p->group];

	if (k->warned[param] || !is_stalled(p->coding[TSR_SLOT_WEIGHT].codec, largest, lr))
		return TSR_OK;
	TSR_TRY(TSR_GROW(&result->warnings, result->nwarnings, err, k->w.r->c->path));
	result->warnings[result->nwarnings++] = (struct tsr_numerics_warning){ s->step, param,
									       largest, lr };
	k->warned[param] = true;
	return TSR_OK;
}

/* --- Tiles ------------------------------------------------------------------------------------ */

/* A step of one state, by the gradient in the second array; NULL: it has none. */
static enum tsr_status step_state(struct stepping *k, const struct tsr_replaying *r,
				  struct scratch *s, unsigned step, const float *grad,
				  struct tsr_compare *compare, struct tsr_err *err)
{
	const size_t param = s->tile.tensor;
	struct tsr_step_report report = { 0 };
	struct tsr_step at = tsr_replay_step_at(&k->w, r, step, param, s->tile.first);
	float *fp32[TSR_SLOTS];

	at.work = s->work;

	if (r->options->check_numerics && grad)
		s->found[step].largest = largest_weight(&at, s->tile.n, s->x);
	if (compare) {
		tsr_replay_fp32_at(r->params[param].array, s->tile.first, fp32);
		tsr_step_compare(&at, fp32, grad, s->tile.n, s->x + 2 * r->longest, r->longest,
				 compare, &report);
	} else if (grad) {
		tsr_step_apply(&at, grad, 0, s->tile.n, &report);
	}
	if (grad)
		tsr_step_turn(&at);
	return tsr_replay_check_report(&k->w, r, step, param, &report, err);
}

/* Where a tile counts how a state compares at a step, from zeros; NULL if it does not. */
static struct tsr_compare *compare_of(const struct stepping *k, struct scratch *s, unsigned state,
				      unsigned step)
{
	return k->sums ? &s->compare[state * k->w.n + step] : NULL;
}

static enum tsr_status step_tile(struct stepping *k, struct scratch *s, unsigned step,
				 struct tsr_err *err)
{
	const struct tsr_replaying *r = k->w.r;
	const bool steps = tsr_replay_grad(&k->w, step, s->tile.tensor) != NULL;
	float *const grad = steps ? s->x + r->longest : NULL;
	struct found *found = &s->found[step];
	size_t nbytes;

	*found = (struct found){ .crc = 0 };
	if (tsr_replay_step_of(&k->w, step)->skipped)
		return TSR_OK;
	if (steps)
		TSR_TRY(tsr_replay_read_grad(&k->w, step, &s->tile, grad, &nbytes, &found->crc,
					     err));
	for (unsigned state = 0; r; r = r->also, state++) {
		struct tsr_compare *compare = compare_of(k, s, state, step);

		if (compare)
			*compare = (struct tsr_compare){ .stalled = 0 };
		TSR_TRY(step_state(k, r, s, step, grad, compare, err));
	}
	return TSR_OK;
}

/* Where what is found begins in scratch memory, and how many bytes it has in a window of @nsteps. */
static size_t found_at(const struct stepping *k)
{
	const size_t nfloats = arrays(k) * k->w.r->longest + k->nwork;

	return sizeof(struct scratch) + (nfloats * sizeof(float) + 7) / 8 * 8;
}

static size_t found_nbytes(const struct stepping *k, unsigned nsteps)
{
	const size_t compares = k->sums ? k->nstates * sizeof(struct tsr_compare) : 0;

	return nsteps * (sizeof(struct found) + compares);
}

static void take_tile(void *ctx, void *scratch, uint64_t job)
{
	const struct stepping *k = ctx;
	struct scratch *s = scratch;

	s->tile = tsr_tiles_get(&k->w.r->tiles, job);
	s->work = s->x + arrays(k) * k->w.r->longest;
	s->found = (void *)((unsigned char *)scratch + found_at(k));
	s->compare = (void *)(s->found + k->w.n);
}

static enum tsr_status tile_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct stepping *k = ctx;
	struct scratch *s = scratch;

	take_tile(k, s, job);
	for (unsigned i = 0; i < k->w.n; i++)
		TSR_TRY(step_tile(k, s, i, err));
	for (const struct tsr_replaying *r = k->w.r; r; r = r->also)
		tsr_replay_leave_tile(r, &s->tile);
	return TSR_OK;
}

/* --- What the tiles had ----------------------------------------------------------------------- */

static enum tsr_status commit_step(struct stepping *k, struct scratch *s, unsigned step,
				   struct tsr_err *err)
{
	const struct found *found = &s->found[step];
	const struct tsr_replaying *r = k->w.r;
	const struct tsr_tile *tile = &s->tile;

	if (tsr_replay_grad(&k->w, step, tile->tensor))
		TSR_TRY(tsr_replay_commit_grad(&k->w, step, tile, found->crc, err));
	if (!tile->first || found->largest > k->largest[step])
		k->largest[step] = found->largest;
	if (tile->last)
		TSR_TRY(warn_of(k, tile->tensor, step, k->largest[step], err));
	if (!k->sums || tsr_replay_step_of(&k->w, step)->skipped)
		return TSR_OK;
	for (unsigned state = 0; r; r = r->also, state++)
		tsr_replay_compare_commit(&k->w, r, &k->sums[state], step, tile,
					  compare_of(k, s, state, step));
	return TSR_OK;
}

static enum tsr_status tile_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct stepping *k = ctx;
	const uint64_t before = k->w.r->result->grad_nbytes;

	(void)job;
	for (unsigned i = 0; i < k->w.n; i++)
		TSR_TRY(commit_step(k, scratch, i, err));
	return tsr_progress_add(&k->w.r->progress, k->w.r->result->grad_nbytes - before, err);
}

/* --- Windows ---------------------------------------------------------------------------------- */

/*
 * Jobs that may be done before their turn.  Three per thread let the others go on while one takes
 * ten times as long as usual; the memory they take is bounded.
 */
static unsigned waiting_of(const struct stepping *k)
{
	const size_t most = WAITING_NBYTES / k->scratch_nbytes;
	const unsigned wanted = 3 * tsr_run_threads(k->w.r->run);

	if (most < TSR_PIPELINE_WAITING)
		return TSR_PIPELINE_WAITING;
	return most < wanted ? (unsigned)most : wanted;
}

/* What GPUs compared, as if each parameter were one tile. */
static void commit_compared(struct stepping *k)
{
	unsigned state = 0;

	for (const struct tsr_replaying *r = k->w.r; r; r = r->also, state++) {
		for (size_t i = 0; i < r->nparams && !tsr_replay_step_of(&k->w, 0)->skipped; i++) {
			const struct tsr_tile all = { .tensor = i, .last = true };

			tsr_replay_compare_commit(&k->w, r, &k->sums[state], 0, &all,
						  tsr_replay_gpu_compared(&k->w, state, i));
		}
	}
}

static enum tsr_status step_window(struct stepping *k)
{
	const struct tsr_replaying *r = k->w.r;
	const struct tsr_pipeline pipeline = { .scratch_nbytes = k->scratch_nbytes,
					       .waiting = waiting_of(k),
					       .work = tile_work,
					       .commit = tile_commit,
					       .ctx = k };

	if (!r->gpus)
		return tsr_replay_run_tiles(pipeline, found_at(k), found_nbytes(k, k->w.n),
					    take_tile);
	TSR_TRY(tsr_replay_gpu_steps(&k->w));
	if (k->sums)
		commit_compared(k);
	return TSR_OK;
}

static void finish_states(struct stepping *k)
{
	unsigned state = 0;

	for (struct tsr_replaying *r = k->w.r; r; r = r->also, state++) {
		tsr_replay_compare_finish(&k->w, r, &k->sums[state]);
		r->result->grad_nbytes = k->w.r->result->grad_nbytes;
	}
}

/* Windows have one step then. */
static enum tsr_status show_step(struct tsr_replay_window *w)
{
	const struct tsr_replay_options *o = w->r->options;
	const struct tsr_replay_step *s = tsr_replay_step_of(w, 0);

	if (!o->each_step || s->skipped)
		return TSR_OK;
	return o->each_step(o->ctx, w->r->c, s->step, w->r->result->hyper, w->r->result->ngroups,
			    w->r->err);
}

static enum tsr_status run_window(struct stepping *k)
{
	struct tsr_replay_window *w = &k->w;
	enum tsr_status status;

	TSR_TRY(tsr_replay_window_open(w));
	TSR_TRY(tsr_replay_name_steps(w->r, w->steps, w->n));
	if (w->r->options->on_nonfinite == TSR_NONFINITE_SKIP)
		TSR_TRY(tsr_replay_skip_steps(w));
	/* What the window knows of its steps, for the states that also take them. */
	for (struct tsr_replaying *r = w->r->also; r; r = r->also) {
		for (unsigned i = 0; i < w->n; i++)
			tsr_replay_step_in(r, w, i)->skipped = tsr_replay_step_of(w, i)->skipped;
		r->result->nskipped = w->r->result->nskipped;
	}
	tsr_replay_plan_steps(w);
	status = step_window(k);
	if (status == TSR_E_FORMAT && w->nonfinite)
		return tsr_replay_name_nonfinite(w);
	for (unsigned i = 0; i < w->n && status == TSR_OK; i++)
		status = tsr_checkpoint_check_unchanged(w->steps[i], w->r->err);
	if (status == TSR_OK && k->sums)
		finish_states(k);
	TSR_THEN(status, show_step(w));
	TSR_THEN(status, tsr_replay_sign_step(w));
	return status;
}

static enum tsr_status prepare(struct stepping *k, struct tsr_replaying *r)
{
	const bool compare = r->options->compare;

	for (const struct tsr_replaying *each = r; each; each = each->also)
		k->nstates++;
	TSR_TRY(tsr_replay_window_init(&k->w, r));
	k->warned = calloc(r->nparams + 1, sizeof(*k->warned));
	if (compare)
		k->sums = calloc(k->nstates, sizeof(*k->sums));
	if (!k->warned || (compare && !k->sums))
		return tsr_fail_nomem(r->err, r->c->path);
	k->nwork = tsr_replay_matrix_work(r);
	k->scratch_nbytes = found_at(k) + found_nbytes(k, TSR_REPLAY_WINDOW);
	return TSR_OK;
}

enum tsr_status tsr_replay_run_steps(struct tsr_replaying *r)
{
	struct stepping k = { .sums = NULL };
	enum tsr_status status = prepare(&k, r);

	while (status == TSR_OK && r->nparams && k.w.first < r->result->nsteps) {
		status = run_window(&k);
		tsr_replay_window_close(&k.w);
		k.w.first += k.w.n;
	}
	tsr_replay_window_free(&k.w);
	free(k.warned);
	free(k.sums);
	return status;
}
