/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps.  An element depends on no other, so a job is a piece of one parameter that takes a
 * window of steps one after another, while it is in the cache: the state passes through memory once
 * per window, and the gradients are all that is read meanwhile.
 */
#include "replay/stepping.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/fail.h"
#include "base/pipeline.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/checksum.h"
#include "replay/on_gpu.h"
#include "recording/open_step.h"

/*
 * Windows are shorter where they would have too many gradients, of which each takes some 150 bytes,
 * or too many files open at once.
 */
#define MANY_GRADS 65536u
#define MANY_FILES 256u

/* Memory for pieces that wait for their turn. */
#define WAITING_NBYTES ((size_t)64 << 20)

/* --- Windows ------------------------------------------------------------------------------------ */

static enum tsr_status changed(const struct tsr_replay_window *w, unsigned step,
			       const struct tsr_tensor *t)
{
	return tsr_fail(w->r->err, TSR_E_IO, "%s: step %llu: tensor %.200s: changed while reading",
			w->steps[step]->path, (unsigned long long)tsr_replay_step_of(w, step)->step,
			t->name);
}

/* Which gradient is for which parameter; what was found of them before must still be so. */
static enum tsr_status open_step(struct tsr_replay_window *w, unsigned step)
{
	struct tsr_replaying *r = w->r;
	struct tsr_checkpoint *c;
	enum tsr_status status;

	TSR_TRY(tsr_recording_open_step(r->recording, r->first + w->first + step, &w->steps[step],
					r->err));
	c = w->steps[step];
	status = tsr_records_check(c, false, NULL, r->err);
	if (status != TSR_OK) {
		tsr_recording_name_step(r->recording, r->first + w->first + step, r->err);
		return status;
	}
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		const struct tsr_replay_param *p = tsr_replay_param_of(r, t->name);

		if (!p || !tsr_tensor_same_shape(t, &r->c->tensors[p->tensor[TSR_PART_WEIGHT]]))
			return changed(w, step, t);
		w->grads[step * r->nparams + (size_t)(p - r->params)] = &c->arrays[t->plane[0]];
	}
	tsr_build_drop_tensors(c);
	return TSR_OK;
}

/* How many of the first @n steps of the window a parameter has a gradient for. */
static unsigned count_grads(const struct tsr_replay_window *w, unsigned n, size_t param)
{
	unsigned count = 0;

	for (unsigned i = 0; i < n; i++)
		count += tsr_replay_grad(w, i, param) != NULL;
	return count;
}

struct tsr_step tsr_replay_make_step(const struct tsr_replay_window *w, unsigned step, size_t param)
{
	const struct tsr_replaying *r = w->r;
	const struct tsr_replay_param *p = &r->params[param];
	const unsigned before = count_grads(w, step, param);
	const uint64_t count = p->count + before + 1;
	struct tsr_step s = { .optimizer = r->result->optimizer };
	struct tsr_hyper h = r->hyper[p->group];

	s.grad_dtype = tsr_replay_grad(w, step, param)->dtype;
	tsr_hyper_put(&h, TSR_HYPER_LR, tsr_replay_step_of(w, step)->lr[p->group]);
	s.flashoptim = r->options->flashoptim;
	s.scalars = s.flashoptim ? tsr_step_flash_scalars(s.optimizer, &h, count)
				 : tsr_step_scalars(s.optimizer, &h, count, p->fresh && !before);
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!p->coding[part].codec)
			continue;
		s.coding[part] = tsr_replay_coding_at(&p->coding[part],
						      tsr_replay_step_of(w, step)->step);
		for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
			s.plane[part][i] = p->plane[part][i];
	}
	return s;
}

/* Count the steps that were taken. */
static void count_steps(struct tsr_replay_window *w)
{
	for (size_t i = 0; i < w->r->nparams; i++) {
		const unsigned taken = count_grads(w, w->n, i);

		w->r->params[i].count += taken;
		w->r->params[i].fresh = w->r->params[i].fresh && !taken;
	}
}

static void close_window(struct tsr_replay_window *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		tsr_checkpoint_close(w->steps[i]);
		w->steps[i] = NULL;
	}
}

static enum tsr_status open_window(struct tsr_replay_window *w)
{
	memset(w->grads, 0, w->n * w->r->nparams * sizeof(struct tsr_array *));
	for (unsigned i = 0; i < w->n; i++)
		TSR_TRY(open_step(w, i));
	return TSR_OK;
}

/* --- Pieces ------------------------------------------------------------------------------------- */

struct tsr_replay_job *tsr_replay_locate(const struct tsr_replay_window *w, void *scratch,
					 uint64_t job)
{
	struct tsr_replay_job *s = scratch;
	size_t low = 0, high = w->r->nparams - 1;
	const struct tsr_replay_param *p;
	uint64_t left;

	while (low < high) {
		const size_t mid = low + (high - low + 1) / 2;

		if (w->start[mid] <= job)
			low = mid;
		else
			high = mid - 1;
	}
	p = &w->r->params[low];
	s->param = low;
	s->first = (job - w->start[low]) * p->piece;
	left = p->numel - s->first;
	s->n = (size_t)(left < p->piece ? left : p->piece);
	s->last = job + 1 == w->start[low + 1];
	return s;
}

enum tsr_status tsr_replay_check_range(const struct tsr_replay_window *w, unsigned step,
				       const struct tsr_replay_param *p,
				       const struct tsr_step_report *report, struct tsr_err *err)
{
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		const struct tsr_encode_report *e = &report->encode[part];
		char found[80] = "";

		tsr_replay_put_count(found, sizeof(found), e->narrow_overflow, "values");
		tsr_replay_put_count(found, sizeof(found), e->scale_overflow, "scales");
		if (*found)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: step %llu: tensor %.200s: found %s of its %s over the "
					"range of %s, expected none",
					w->steps[step]->path,
					(unsigned long long)tsr_replay_step_of(w, step)->step,
					p->name, found,
					tsr_kind_name(tsr_part_kind((enum tsr_part)part)),
					p->coding[part].codec->name);
	}
	return TSR_OK;
}

struct tsr_step tsr_replay_step_at(const struct tsr_step *step, uint64_t first)
{
	struct tsr_step at = *step;

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		for (unsigned i = 0; at.coding[part].codec && i < at.coding[part].codec->nplanes;
		     i++)
			at.plane[part][i] = (unsigned char *)at.plane[part][i] +
					    tsr_plane_nbytes(&at.coding[part], i, first);
		at.coding[part].first = first;
	}
	return at;
}

static float largest_of(const float *x, size_t n)
{
	float most = 0;

	for (size_t i = 0; i < n; i++) {
		const float magnitude = x[i] < 0 ? -x[i] : x[i];

		most = magnitude > most ? magnitude : most;
	}
	return most;
}

/* The largest weight before the step. */
static void look_at_weights(const struct tsr_replay_window *w, struct tsr_replay_job *s,
			    const struct tsr_step *at, struct tsr_replay_piece *piece)
{
	const struct tsr_coding *coding = &at->coding[TSR_PART_WEIGHT];

	if (!w->r->options->check_numerics)
		return;
	coding->codec->decode(coding, (const void *const *)at->plane[TSR_PART_WEIGHT], s->n, s->x);
	piece->largest = largest_of(s->x, s->n);
}

static enum tsr_status step_piece(struct tsr_replay_window *w, struct tsr_replay_job *s,
				  unsigned step, struct tsr_err *err)
{
	const struct tsr_array *array = tsr_replay_grad(w, step, s->param);
	const struct tsr_replay_param *p = &w->r->params[s->param];
	struct tsr_replay_piece *piece = &s->piece[step];
	void *grad = s->x + w->longest;
	struct tsr_step_report report = { 0 };
	struct tsr_step whole, at;

	*piece = (struct tsr_replay_piece){ .nbytes = 0 };
	if (tsr_replay_step_of(w, step)->skipped)
		return TSR_OK;
	if (!array) {
		tsr_replay_compare_idle(w, p, s->first, s->n, s->x, piece);
		return TSR_OK;
	}
	piece->nbytes = tsr_replay_grad_nbytes(array, s->n);
	TSR_TRY(tsr_array_read(w->steps[step], array, tsr_replay_grad_nbytes(array, 1) * s->first,
			       piece->nbytes, grad, err));
	if (tsr_array_is_streamed(array))
		piece->crc = tsr_crc32(0, grad, piece->nbytes);
	whole = tsr_replay_make_step(w, step, s->param);
	at = tsr_replay_step_at(&whole, s->first);
	look_at_weights(w, s, &at, piece);
	if (w->r->options->compare)
		tsr_replay_compare_step(w, p, &at, s->first, s->n, grad, s->x, piece, &report);
	else
		tsr_step_apply(&at, grad, 0, s->n, &report);
	if (report.nonfinite_grad) {
		__atomic_store_n(&w->nonfinite, true, __ATOMIC_RELAXED);
		return tsr_fail(err, TSR_E_FORMAT, "%s: non-finite gradient", w->steps[step]->path);
	}
	return tsr_replay_check_range(w, step, p, &report, err);
}

static enum tsr_status piece_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct tsr_replay_window *w = ctx;
	struct tsr_replay_job *s = tsr_replay_locate(w, scratch, job);

	for (unsigned i = 0; i < w->n; i++)
		TSR_TRY(step_piece(w, s, i, err));
	return TSR_OK;
}

/* --- What the pieces found ---------------------------------------------------------------------- */

enum tsr_status tsr_replay_commit_record(struct tsr_replay_window *w, unsigned step,
					 const struct tsr_array *grad, bool begin, bool end,
					 uint32_t piece_crc, size_t nbytes, struct tsr_err *err)
{
	struct tsr_record_crc *crc = &w->crc[step];
	enum tsr_status status;

	if (!tsr_array_is_streamed(grad))
		return TSR_OK;
	if (begin)
		crc->crc = 0;
	tsr_record_add(crc, piece_crc, nbytes);
	status = end ? tsr_record_check(w->steps[step], grad, crc, err) : TSR_OK;
	if (status != TSR_OK)
		tsr_recording_name_step(w->r->recording, w->r->first + w->first + step, err);
	return status;
}

static enum tsr_status warn_of(struct tsr_replay_window *w, size_t param, unsigned step,
			       float largest, struct tsr_err *err)
{
	struct tsr_replay *result = w->r->result;
	const struct tsr_replay_param *p = &w->r->params[param];
	const double lr = tsr_replay_step_of(w, step)->lr[p->group];
	struct tsr_numerics_warning *warnings;

	if (w->warned[param] ||
	    !tsr_replay_is_stalled(p->coding[TSR_PART_WEIGHT].codec, largest, lr))
		return TSR_OK;
	warnings = realloc(result->warnings, (result->nwarnings + 1) * sizeof(*warnings));
	if (!warnings)
		return tsr_fail_nomem(err, w->r->c->path);
	result->warnings = warnings;
	warnings[result->nwarnings++] = (struct tsr_numerics_warning){
		.step = tsr_replay_step_of(w, step)->step,
		.param = param,
		.largest = largest,
		.lr = lr
	};
	w->warned[param] = true;
	return TSR_OK;
}

static enum tsr_status commit_step(struct tsr_replay_window *w, const struct tsr_replay_job *s,
				   unsigned step, struct tsr_err *err)
{
	const struct tsr_replay_piece *piece = &s->piece[step];
	const struct tsr_array *grad = tsr_replay_grad(w, step, s->param);

	if (grad)
		TSR_TRY(tsr_replay_commit_record(w, step, grad, s->first == 0, s->last, piece->crc,
						 piece->nbytes, err));
	w->r->result->grad_nbytes += piece->nbytes;
	w->r->done_nbytes += piece->nbytes;
	if (s->first == 0)
		w->largest[step] = 0;
	if (piece->largest > w->largest[step])
		w->largest[step] = piece->largest;
	if (s->last)
		TSR_TRY(warn_of(w, s->param, step, w->largest[step], err));
	if (w->r->options->compare && !tsr_replay_step_of(w, step)->skipped)
		tsr_replay_compare_commit(w, s->param, step, piece, s->first == 0, s->last);
	return TSR_OK;
}

enum tsr_status tsr_replay_progress(const struct tsr_replay_window *w, struct tsr_err *err)
{
	const struct tsr_run *run = w->r->run;

	if (run && run->progress && !run->progress(run->ctx, w->r->done_nbytes, w->r->total_nbytes))
		return tsr_fail(err, TSR_E_CANCELLED, "%s: cancelled", w->r->recording->path);
	return TSR_OK;
}

static enum tsr_status piece_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct tsr_replay_window *w = ctx;
	const struct tsr_replay_job *s = scratch;

	(void)job;
	for (unsigned i = 0; i < w->n; i++)
		TSR_TRY(commit_step(w, s, i, err));
	return tsr_replay_progress(w, err);
}

/*
 * Jobs that may be done before their turn.  Three per thread let the others go on while one takes
 * ten times as long as usual; what they take in memory is bounded.
 */
static unsigned waiting_of(const struct tsr_replay_window *w)
{
	const size_t most = WAITING_NBYTES / w->scratch_nbytes;
	const unsigned wanted = 3 * tsr_run_threads(w->r->run);

	if (most < TSR_PIPELINE_WAITING)
		return TSR_PIPELINE_WAITING;
	return most < wanted ? (unsigned)most : wanted;
}

/* --- All of it ------------------------------------------------------------------------------------ */

static enum tsr_status run_window(struct tsr_replay_window *w)
{
	const struct tsr_pipeline pipeline = { .njobs = w->start[w->r->nparams],
					       .scratch_nbytes = w->scratch_nbytes,
					       .waiting = waiting_of(w),
					       .work = piece_work,
					       .commit = piece_commit,
					       .ctx = w };
	enum tsr_status status;

	TSR_TRY(open_window(w));
	if (w->r->options->on_nonfinite == TSR_NONFINITE_SKIP)
		TSR_TRY(tsr_replay_skip_steps(w));
	status = w->r->gpu ? tsr_replay_gpu_window(w)
			   : tsr_pipeline_run(&pipeline, w->r->run, w->r->err);
	if (status == TSR_E_FORMAT && w->nonfinite)
		return tsr_replay_name_nonfinite(w);
	for (unsigned i = 0; i < w->n && status == TSR_OK; i++)
		status = tsr_checkpoint_check_unchanged(w->steps[i], w->r->err);
	if (status != TSR_OK)
		return status;
	count_steps(w);
	tsr_replay_compare_finish(w);
	return TSR_OK;
}

static unsigned longest_window_of(size_t nparams)
{
	const size_t n = nparams ? MANY_GRADS / nparams : TSR_REPLAY_WINDOW;

	return n < 1 ? 1 : n < TSR_REPLAY_WINDOW ? (unsigned)n : TSR_REPLAY_WINDOW;
}

static enum tsr_status prepare(struct tsr_replay_window *w)
{
	const struct tsr_replaying *r = w->r;
	const bool compare = r->options->compare;

	w->start = calloc(r->nparams + 1, sizeof(*w->start));
	w->longest_window = longest_window_of(r->nparams);
	w->grads = calloc(w->longest_window * r->nparams + 1, sizeof(struct tsr_array *));
	w->warned = calloc(r->nparams + 1, sizeof(*w->warned));
	if (compare)
		w->compare = calloc(1, sizeof(*w->compare));
	if (!w->start || !w->grads || !w->warned || (compare && !w->compare))
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_replay_param *p = &r->params[i];
		const uint64_t longest = p->piece < p->numel ? p->piece : p->numel;

		w->longest = longest > w->longest ? (size_t)longest : w->longest;
		w->start[i + 1] = w->start[i] + (p->numel ? (p->numel - 1) / p->piece + 1 : 1);
	}
	/* Whole cache lines, so that arrays begin at such. */
	w->longest = (w->longest + 15) / 16 * 16;
	w->scratch_nbytes = sizeof(struct tsr_replay_job) +
			    (compare ? TSR_REPLAY_COMPARE_ARRAYS : 2) * w->longest * sizeof(float);
	return TSR_OK;
}

/* How many steps the window from @first on has: their files are all open. */
static unsigned window_at(const struct tsr_replay_window *w, size_t first)
{
	const struct tsr_recording_step *steps = w->r->recording->steps + w->r->first;
	size_t nfiles = steps[first].nfiles;
	unsigned n = 1;

	while (n < w->longest_window && first + n < w->r->result->nsteps &&
	       steps[first + n].nfiles <= MANY_FILES - (nfiles < MANY_FILES ? nfiles : MANY_FILES))
		nfiles += steps[first + n++].nfiles;
	return n;
}

enum tsr_status tsr_replay_run_steps(struct tsr_replaying *r)
{
	struct tsr_replay_window w = { .r = r };
	enum tsr_status status = prepare(&w);

	while (status == TSR_OK && w.first < r->result->nsteps) {
		w.n = window_at(&w, w.first);
		status = r->nparams ? run_window(&w) : TSR_OK;
		close_window(&w);
		w.first += w.n;
	}
	free(w.start);
	free((void *)w.grads);
	free(w.warned);
	free(w.compare);
	return status;
}
