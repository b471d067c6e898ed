/* SPDX-License-Identifier: Apache-2.0 */
/* The state after the last step: values that are not finite, and counting them in words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "replay/engine.h"

void tsr_replay_put_count(char *text, size_t room, uint64_t n, const char *what)
{
	const size_t at = strlen(text);

	if (n)
		snprintf(text + at, room - at, "%s%llu %s", at ? ", " : "", (unsigned long long)n,
			 what);
}

/* --- Looking at the state ----------------------------------------------------------------------- */

/* A job is a piece of a parameter, all parts of it. */
struct looking {
	struct tsr_replaying *r;
	uint64_t *start; /* per parameter: its first job; one entry more at the end */
	size_t longest; /* elements of a job */
	bool found; /* the first part of a parameter that has such values: */
	size_t param;
	unsigned part;
	uint64_t n; /* how many it has */
};

struct look {
	size_t param;
	uint64_t n[TSR_PARTS];
	_Alignas(64) float x[];
};

static size_t param_of(const struct looking *l, uint64_t job)
{
	size_t low = 0, high = l->r->nparams - 1;

	while (low < high) {
		const size_t mid = low + (high - low + 1) / 2;

		if (l->start[mid] <= job)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

static bool is_finite(float x)
{
	return x - x == 0;
}

/* Blocks of a length that compilers see are looked through as vectors; few have such values. */
#define BLOCK 256u

static uint64_t count_nonfinite(const float *x, size_t n)
{
	uint64_t count = 0;
	size_t i = 0;

	for (; n - i >= BLOCK; i += BLOCK) {
		uint32_t found = 0;

		for (size_t j = 0; j < BLOCK; j++)
			found += !is_finite(x[i + j]);
		count += found;
	}
	for (; i < n; i++)
		count += !is_finite(x[i]);
	return count;
}

static enum tsr_status look_work(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct looking *l = ctx;
	struct look *s = scratch;
	const struct tsr_replay_param *p;
	uint64_t first;
	size_t n;

	(void)err;
	s->param = param_of(l, job);
	p = &l->r->params[s->param];
	first = (job - l->start[s->param]) * p->piece;
	n = (size_t)(p->numel - first < p->piece ? p->numel - first : p->piece);
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		struct tsr_coding coding = p->coding[part];
		const void *plane[TSR_PLANES_MAX];

		s->n[part] = 0;
		if (!coding.codec)
			continue;
		for (unsigned i = 0; i < coding.codec->nplanes; i++)
			plane[i] = p->plane[part][i] + tsr_plane_nbytes(&coding, i, first);
		coding.first = first;
		if (coding.codec->planes[0].dtype != TSR_F32)
			coding.codec->decode(&coding, plane, n, s->x);
		s->n[part] = count_nonfinite(
			coding.codec->planes[0].dtype == TSR_F32 ? plane[0] : s->x, n);
	}
	return TSR_OK;
}

static enum tsr_status look_commit(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	struct looking *l = ctx;
	const struct look *s = scratch;
	const struct tsr_run *run = l->r->run;

	(void)job;
	if (run && run->progress && !run->progress(run->ctx, 1, 1))
		return tsr_fail(err, TSR_E_CANCELLED, "%s: cancelled", l->r->c->path);
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		l->r->result->nonfinite += s->n[part];
		if (s->n[part] && !l->found) {
			l->found = true;
			l->param = s->param;
			l->part = part;
		}
		if (l->found && l->param == s->param && l->part == part)
			l->n += s->n[part];
	}
	return TSR_OK;
}

static enum tsr_status plan_jobs(struct looking *l)
{
	l->start = calloc(l->r->nparams + 1, sizeof(*l->start));
	if (!l->start)
		return tsr_fail_nomem(l->r->err, l->r->c->path);
	for (size_t i = 0; i < l->r->nparams; i++) {
		const struct tsr_replay_param *p = &l->r->params[i];
		const uint64_t longest = p->piece < p->numel ? p->piece : p->numel;

		l->longest = longest > l->longest ? (size_t)longest : l->longest;
		l->start[i + 1] = l->start[i] + (p->numel ? (p->numel - 1) / p->piece + 1 : 1);
	}
	return TSR_OK;
}

static enum tsr_status look(struct looking *l)
{
	struct tsr_pipeline pipeline = { .work = look_work, .commit = look_commit, .ctx = l };

	TSR_TRY(plan_jobs(l));
	pipeline.njobs = l->start[l->r->nparams];
	pipeline.scratch_nbytes = sizeof(struct look) + l->longest * sizeof(float);
	return l->r->nparams ? tsr_pipeline_run(&pipeline, l->r->run, l->r->err) : TSR_OK;
}

enum tsr_status tsr_replay_check_finite(struct tsr_replaying *r, bool written)
{
	const struct tsr_replay_step *last = &r->result->steps[r->result->nsteps - 1];
	struct looking l = { .r = r };
	const enum tsr_status status = look(&l);

	free(l.start);
	if (status != TSR_OK || !l.found)
		return status;
	if (written)
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: after step %llu found %llu values of its %s "
				"that are not finite, expected none; nothing written",
				r->c->path, r->params[l.param].name, (unsigned long long)last->step,
				(unsigned long long)l.n,
				tsr_kind_name(tsr_part_kind((enum tsr_part)l.part)));
	return tsr_build_note(r->c, r->err,
			      "%s: tensor %.200s: after step %llu %llu values of its %s are not "
			      "finite",
			      r->c->path, r->params[l.param].name, (unsigned long long)last->step,
			      (unsigned long long)l.n,
			      tsr_kind_name(tsr_part_kind((enum tsr_part)l.part)));
}
