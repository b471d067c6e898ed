/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that are not finite: skipping their steps, or naming the first. */
#include "replay/check_gradients.h"

#include <inttypes.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "codec/nonfinite.h"

/* Looking through the gradients of one step. */
struct scan {
	struct tsr_replay_window *w;
	unsigned step;
	bool found; /* the first one: */
	size_t param;
	uint64_t index;
};

struct scan_scratch {
	struct tsr_tile tile;
	size_t index; /* in the tile; SIZE_MAX: all are finite */
	_Alignas(64) float grad[];
};

static enum tsr_status scan_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct scan *scan = ctx;
	const struct tsr_replay_window *w = scan->w;
	struct scan_scratch *s = scratch;
	const struct tsr_array *grad;
	size_t nbytes;

	s->tile = tsr_tiles_get(&w->r->tiles, job);
	s->index = SIZE_MAX;
	grad = tsr_replay_grad(w, scan->step, s->tile.tensor);
	if (!grad)
		return TSR_OK;
	TSR_TRY(tsr_replay_read_grad(w, scan->step, &s->tile, s->grad, &nbytes, NULL, err));
	if (tsr_count_nonfinite(grad->dtype, s->grad, nbytes))
		s->index = tsr_first_nonfinite(grad->dtype, s->grad, nbytes);
	return TSR_OK;
}

static enum tsr_status scan_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct scan *scan = ctx;
	const struct scan_scratch *s = scratch;

	(void)job;
	if (!scan->found && s->index != SIZE_MAX) {
		scan->found = true;
		scan->param = s->tile.tensor;
		scan->index = s->tile.first + s->index;
	}
	return tsr_progress_add(&scan->w->r->progress, 0, err);
}

static enum tsr_status scan_step(struct tsr_replay_window *w, struct scan *scan)
{
	const struct tsr_pipeline pipeline = { .njobs = w->r->tiles.njobs,
					       .scratch_nbytes = sizeof(struct scan_scratch) +
								 w->r->longest * sizeof(float),
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
		tsr_replay_step_of(w, i)->skipped = scan.found;
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
			return tsr_fail_hint(w->r->err, TSR_E_FORMAT, TSR_HINT_SKIP_NONFINITE,
					     "%s: step %" PRIu64
					     ": tensor %.200s: gradient element %" PRIu64
					     " is not finite",
					     w->steps[i]->path, tsr_replay_step_of(w, i)->step,
					     tsr_replay_grad(w, i, scan.param)->name, scan.index);
	}
	return tsr_fail(w->r->err, TSR_E_IO, "%s: changed while reading", w->steps[0]->path);
}
