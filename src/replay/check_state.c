/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the state that are not finite after the last step. */
#include "replay/check_state.h"

#include <inttypes.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "ckpt/build.h"
#include "codec/nonfinite.h"

struct looking {
	struct tsr_replaying *r;
	bool found; /* the first part of a parameter that has such values: */
	size_t param;
	unsigned part;
	uint64_t n; /* how many it has */
};

/* Scratch memory of a job: all parts of a tile. */
struct look {
	struct tsr_tile tile;
	uint64_t n[TSR_PARTS]; /* values that are not finite */
	_Alignas(64) float x[];
};

static enum tsr_status look_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct looking *l = ctx;
	struct look *s = scratch;
	const struct tsr_replay_param *p;

	(void)err;
	s->tile = tsr_tiles_get(&l->r->tiles, job);
	p = &l->r->params[s->tile.tensor];
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		struct tsr_coding coding = p->coding[part];
		void *plane[TSR_PLANES_MAX];
		const void *x = s->x;

		s->n[part] = 0;
		if (!coding.codec)
			continue;
		tsr_replay_planes_at(&coding, p->plane[part], s->tile.first, plane);
		coding.first = s->tile.first;
		if (tsr_replay_is_f32(&coding))
			x = plane[0];
		else
			coding.codec->decode(&coding, (const void *const *)plane, s->tile.n, s->x);
		s->n[part] = tsr_count_nonfinite(TSR_F32, x, s->tile.n * sizeof(float));
	}
	return TSR_OK;
}

static enum tsr_status look_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct looking *l = ctx;
	const struct look *s = scratch;

	(void)job;
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		l->r->result->nonfinite += s->n[part];
		if (s->n[part] && !l->found) {
			l->found = true;
			l->param = s->tile.tensor;
			l->part = part;
		}
		if (l->found && l->param == s->tile.tensor && l->part == part)
			l->n += s->n[part];
	}
	return tsr_progress_add(&l->r->progress, 0, err);
}

enum tsr_status tsr_replay_check_state(struct tsr_replaying *r, bool written)
{
	const struct tsr_replay_step *last = &r->result->steps[r->result->nsteps - 1];
	struct looking l = { .r = r };
	const struct tsr_pipeline pipeline = { .njobs = r->tiles.njobs,
					       .scratch_nbytes = sizeof(struct look) +
								 r->longest * sizeof(float),
					       .work = look_work,
					       .commit = look_commit,
					       .ctx = &l };

	if (r->nparams)
		TSR_TRY(tsr_pipeline_run(&pipeline, r->run, r->err));
	if (!l.found)
		return TSR_OK;
	if (written)
		return tsr_fail(
			r->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: after step %" PRIu64 " found %" PRIu64
			" values of its %s that are not finite, expected none; nothing written",
			r->c->path, r->params[l.param].name, last->step, l.n,
			tsr_kind_name(tsr_part_kind((enum tsr_part)l.part)));
	return tsr_build_note(r->c, r->err,
			      "%s: tensor %.200s: after step %" PRIu64 " %" PRIu64
			      " values of its %s are not finite",
			      r->c->path, r->params[l.param].name, last->step, l.n,
			      tsr_kind_name(tsr_part_kind((enum tsr_part)l.part)));
}
