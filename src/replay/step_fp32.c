/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a comparison: the replay in FP32 beside the one that is asked for. */
#include "replay/step_fp32.h"

#include <string.h>

/* A step on FP32 arrays. */
static void step_f32(const struct tsr_step *like, float *const x[], const void *grad, size_t n,
		     struct tsr_step_report *report)
{
	struct tsr_step step = { .optimizer = like->optimizer,
				 .flashoptim = like->flashoptim,
				 .scalars = like->scalars,
				 .grad_dtype = like->grad_dtype };

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!like->coding[part].codec)
			continue;
		step.coding[part] = tsr_coding_default(tsr_codec_find("f32"));
		step.plane[part][0] = x[part];
	}
	tsr_step_apply(&step, grad, 0, n, report);
}

/* The arrays of a tile. */
struct arrays {
	float *before[TSR_PARTS], *stepped[TSR_PARTS], *after[TSR_PARTS];
	float *fp32_before, *grad;
	float *fp32[TSR_PARTS]; /* of the replay in FP32, where they are */
};

static struct arrays place(const struct tsr_replaying *r, const struct tsr_tile *tile, float *x)
{
	const struct tsr_replay_param *p = &r->params[tile->tensor];
	struct arrays a = { .fp32_before = x, .grad = x + r->longest };

	x += 2 * r->longest;
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!p->coding[part].codec)
			continue;
		a.before[part] = x + (3 * part + 0) * r->longest;
		a.stepped[part] = x + (3 * part + 1) * r->longest;
		a.after[part] = x + (3 * part + 2) * r->longest;
		a.fp32[part] = p->fp32[part] + tile->first;
	}
	return a;
}

static void add(struct tsr_compare *c, const struct arrays *a, size_t n)
{
	struct tsr_compare_run run = { .n = n, .fp32_before = a->fp32_before };

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		run.before[part] = a->before[part];
		run.stepped[part] = a->stepped[part];
		run.after[part] = a->after[part];
		run.fp32_after[part] = a->fp32[part];
	}
	tsr_compare_add(c, &run);
}

void tsr_replay_compare_step(const struct tsr_replaying *r, const struct tsr_tile *tile,
			     const struct tsr_step *at, float *x, struct tsr_compare *ret,
			     struct tsr_step_report *report)
{
	const struct arrays a = place(r, tile, x);
	const size_t n = tile->n;
	struct tsr_step_report fp32_report = { 0 };

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!a.before[part])
			continue;
		at->coding[part].codec->decode(
			&at->coding[part], (const void *const *)at->plane[part], n, a.before[part]);
		memcpy(a.stepped[part], a.before[part], n * sizeof(float));
	}
	step_f32(at, a.stepped, a.grad, n, report);
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!a.before[part])
			continue;
		at->coding[part].codec->encode(&at->coding[part], a.stepped[part], n,
					       at->plane[part], &report->encode[part]);
		at->coding[part].codec->decode(
			&at->coding[part], (const void *const *)at->plane[part], n, a.after[part]);
	}
	memcpy(a.fp32_before, a.fp32[TSR_PART_WEIGHT], n * sizeof(float));
	step_f32(at, a.fp32, a.grad, n, &fp32_report);
	add(ret, &a, n);
	ret->underflow += report->encode[TSR_PART_MOMENTUM].scale_underflow +
			  report->encode[TSR_PART_VARIANCE].scale_underflow;
}

void tsr_replay_compare_idle(const struct tsr_replaying *r, const struct tsr_tile *tile, float *x,
			     struct tsr_compare *ret)
{
	const struct tsr_replay_param *p = &r->params[tile->tensor];
	struct arrays a = place(r, tile, x);

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		const struct tsr_coding *coding = &p->coding[part];
		void *plane[TSR_PLANES_MAX];

		if (!a.before[part])
			continue;
		tsr_replay_planes_at(coding, p->plane[part], tile->first, plane);
		coding->codec->decode(coding, (const void *const *)plane, tile->n, a.before[part]);
		a.stepped[part] = a.after[part] = a.before[part];
	}
	a.fp32_before = a.fp32[TSR_PART_WEIGHT];
	add(ret, &a, tile->n);
}

/* --- Sums ------------------------------------------------------------------------------------ */

void tsr_replay_compare_commit(const struct tsr_replay_window *w, struct tsr_replay_sums *sums,
			       unsigned step, const struct tsr_tile *tile,
			       const struct tsr_compare *compare)
{
	if (!tile->first)
		sums->param[step] = *compare;
	else
		tsr_compare_merge(&sums->param[step], compare);
	if (!tile->last)
		return;
	tsr_replay_step_of(w, step)->tensors[tile->tensor] = tsr_compare_figures(
		&sums->param[step], w->r->params[tile->tensor].kinds);
	if (sums->any[step])
		tsr_compare_merge(&sums->total[step], &sums->param[step]);
	else
		sums->total[step] = sums->param[step];
	sums->any[step] = true;
}

void tsr_replay_compare_finish(const struct tsr_replay_window *w, struct tsr_replay_sums *sums)
{
	unsigned kinds = 0;

	for (size_t i = 0; i < w->r->nparams; i++)
		kinds |= w->r->params[i].kinds;
	for (unsigned i = 0; i < w->n; i++) {
		if (sums->any[i])
			tsr_replay_step_of(w, i)->total = tsr_compare_figures(&sums->total[i],
									      kinds);
		sums->any[i] = false;
	}
}
