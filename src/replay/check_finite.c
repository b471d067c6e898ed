/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are not finite: in gradients, whose steps are skipped or refused, and in the state. */
#include "replay/stepping.h"

#include "base/fail.h"
#include "base/pipeline.h"
#include "ckpt/build.h"
#include "codec/nonfinite.h"
#include "replay/soap_state.h"
#include "replay/replay_parts.h"

/* --- Gradients -------------------------------------------------------------------------------- */

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

/* --- The state -------------------------------------------------------------------------------- */

struct looking {
	struct tsr_replaying *r;
	bool found; /* the first slot of a parameter that has such values: */
	size_t param;
	unsigned slot;
	uint64_t n; /* how many it has */
};

/* Scratch memory of a job: all slots of a tile. */
struct look {
	struct tsr_tile tile;
	uint64_t n[TSR_SLOTS + 1]; /* values that are not finite; SOAP's factors and bases last */
	_Alignas(64) float x[];
};

static enum tsr_status look_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct looking *l = ctx;
	struct look *s = scratch;
	const struct tsr_replay_param *p;
	const float *variance = NULL;

	(void)err;
	s->tile = tsr_tiles_get(&l->r->tiles, job);
	p = &l->r->params[s->tile.tensor];
	/* The variance comes before the momentum, which may be relative to it. */
	for (unsigned slot = TSR_SLOTS; slot--;) {
		struct tsr_coding coding = p->coding[slot];
		void *plane[TSR_PLANES_MAX];
		float *const decoded = s->x + (slot == TSR_SLOT_VARIANCE ? l->r->longest : 0);
		const float *x = decoded;

		s->n[slot] = 0;
		if (!coding.codec)
			continue;
		tsr_replay_planes_at(&coding, tsr_replay_planes(p, slot), s->tile.first, plane);
		coding.first = s->tile.first;
		if (tsr_replay_is_f32(&coding))
			x = plane[0];
		else
			coding.codec->decode(&coding, (const void *const *)plane, s->tile.n,
					     decoded);
		tsr_ratios_undo(&coding, decoded, variance, s->tile.n);
		variance = slot == TSR_SLOT_VARIANCE ? x : variance;
		s->n[slot] = tsr_count_nonfinite(TSR_F32, x, s->tile.n * sizeof(float));
	}
	s->n[TSR_SLOTS] = tsr_replay_count_nonfinite_bases(p);
	tsr_replay_leave_tile(l->r, &s->tile);
	return TSR_OK;
}

static enum tsr_status look_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct looking *l = ctx;
	const struct look *s = scratch;
	const size_t param = tsr_tiles_get(&l->r->tiles, job).tensor;

	for (unsigned slot = 0; slot <= TSR_SLOTS; slot++) {
		l->r->result->nonfinite += s->n[slot];
		if (s->n[slot] && !l->found) {
			l->found = true;
			l->param = param;
			l->slot = slot;
		}
		if (l->found && l->param == param && l->slot == slot)
			l->n += s->n[slot];
	}
	return tsr_progress_add(&l->r->progress, 0, err);
}

enum tsr_status tsr_replay_check_state(struct tsr_replaying *r, bool written)
{
	const struct tsr_replay_step *last = &r->result->steps[r->result->nsteps - 1];
	struct looking l = { .r = r };
	const struct tsr_pipeline pipeline = { .scratch_nbytes = sizeof(struct look) +
								 2 * r->longest * sizeof(float),
					       .work = look_work,
					       .commit = look_commit,
					       .ctx = &l };
	const char *what;

	if (r->nparams)
		TSR_TRY(tsr_replay_run_tiles(pipeline, offsetof(struct look, n),
					     (TSR_SLOTS + 1) * sizeof(uint64_t), NULL));
	if (!l.found)
		return TSR_OK;
	what = l.slot < TSR_SLOTS ? tsr_kind_name(tsr_slot_kind((enum tsr_slot)l.slot))
				  : "factors and bases";
	if (written)
		return tsr_fail(
			r->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: after step %" PRIu64 " found %" PRIu64
			" values of its %s that are not finite, expected none; nothing written",
			r->c->path, r->params[l.param].name, last->step, l.n, what);
	return tsr_build_note(r->c, r->err,
			      "%s: tensor %.200s: after step %" PRIu64 " %" PRIu64
			      " values of its %s are not finite",
			      r->c->path, r->params[l.param].name, last->step, l.n, what);
}
