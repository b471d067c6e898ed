/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that are not finite: finding them before a step, or naming the first afterwards. */
#include <stdlib.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "ckpt/checkpoint_model.h"
#include "replay/stepping.h"

/* The first element that is not, or SIZE_MAX. */
static size_t first_nonfinite(enum tsr_dtype dtype, const void *grad, size_t n)
{
	const uint16_t exponent = dtype == TSR_BF16 ? 0x7f80 : 0x7c00;
	const uint16_t *narrow = grad;
	const uint32_t *wide = grad;

	for (size_t i = 0; i < n; i++) {
		if (dtype == TSR_F32 ? (wide[i] & 0x7f800000u) == 0x7f800000u
				     : (narrow[i] & exponent) == exponent)
			return i;
	}
	return SIZE_MAX;
}

/* Looking through the gradients of one step; jobs as for stepping. */
struct scan {
	struct tsr_replay_window *w;
	unsigned step;
	bool found; /* the first one: */
	size_t param;
	uint64_t index;
};

static enum tsr_status scan_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct scan *scan = ctx;
	struct tsr_replay_window *w = scan->w;
	struct tsr_replay_job *s = tsr_replay_locate(w, scratch, job);
	const struct tsr_array *grad = tsr_replay_grad(w, scan->step, s->param);

	s->piece[0].index = SIZE_MAX;
	if (!grad)
		return TSR_OK;
	TSR_TRY(tsr_array_read(w->steps[scan->step], grad,
			       tsr_replay_grad_nbytes(grad, 1) * s->first,
			       tsr_replay_grad_nbytes(grad, s->n), s->x, err));
	s->piece[0].index = first_nonfinite(grad->dtype, s->x, s->n);
	return TSR_OK;
}

static enum tsr_status scan_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct scan *scan = ctx;
	const struct tsr_replay_job *s = scratch;

	(void)job;
	if (!scan->found && s->piece[0].index != SIZE_MAX) {
		scan->found = true;
		scan->param = s->param;
		scan->index = s->first + s->piece[0].index;
	}
	return tsr_replay_progress(scan->w, err);
}

static enum tsr_status scan_step(struct tsr_replay_window *w, struct scan *scan)
{
	const struct tsr_pipeline pipeline = { .njobs = w->start[w->r->nparams],
					       .scratch_nbytes = w->scratch_nbytes,
					       .work = scan_work,
					       .commit = scan_commit,
					       .ctx = scan };

	return tsr_pipeline_run(&pipeline, w->r->run, w->r->err);
}

enum tsr_status tsr_replay_skip_steps(struct tsr_replay_window *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		struct scan scan = { .w = w, .step = i };

		TSR_TRY(scan_step(w, &scan));
		w->r->result->steps[w->first + i].skipped = scan.found;
		w->r->result->nskipped += scan.found;
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_name_nonfinite(struct tsr_replay_window *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		struct scan scan = { .w = w, .step = i };

		TSR_TRY(scan_step(w, &scan));
		if (scan.found)
			return tsr_fail_hint(
				w->r->err, TSR_E_FORMAT, TSR_HINT_SKIP_NONFINITE,
				"%s: step %llu: tensor %.200s: gradient element %llu is not finite",
				w->steps[i]->path,
				(unsigned long long)tsr_replay_step_of(w, i)->step,
				tsr_replay_grad(w, i, scan.param)->name,
				(unsigned long long)scan.index);
	}
	return tsr_fail(w->r->err, TSR_E_IO, "%s: changed while reading", w->steps[0]->path);
}
