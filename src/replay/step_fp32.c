/* SPDX-License-Identifier: Apache-2.0 */
/* The replay in FP32 beside the one that is asked for. */
#include <string.h>

#include "replay/stepping.h"

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

/* The arrays of a piece.  The second is the gradient's. */
struct arrays {
	float *before[TSR_PARTS], *stepped[TSR_PARTS], *after[TSR_PARTS];
	float *fp32_before;
	float *fp32[TSR_PARTS]; /* of the replay in FP32, where they are */
};

static struct arrays place(const struct tsr_replay_window *w, const struct tsr_replay_param *p,
			   uint64_t first, float *x)
{
	struct arrays a = { .fp32_before = x };

	x += 2 * w->longest;
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!p->coding[part].codec)
			continue;
		a.before[part] = x + (3 * part + 0) * w->longest;
		a.stepped[part] = x + (3 * part + 1) * w->longest;
		a.after[part] = x + (3 * part + 2) * w->longest;
		a.fp32[part] = p->fp32[part] + first;
	}
	return a;
}

static void add(struct tsr_replay_piece *piece, const struct arrays *a, size_t n)
{
	struct tsr_compare_run run = { .n = n, .fp32_before = a->fp32_before };

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		run.before[part] = a->before[part];
		run.stepped[part] = a->stepped[part];
		run.after[part] = a->after[part];
		run.fp32_after[part] = a->fp32[part];
	}
	tsr_compare_add(&piece->compare, &run);
}

void tsr_replay_compare_step(const struct tsr_replay_window *w, const struct tsr_replay_param *p,
			     const struct tsr_step *at, uint64_t first, size_t n, const void *grad,
			     float *x, struct tsr_replay_piece *piece,
			     struct tsr_step_report *report)
{
	const struct arrays a = place(w, p, first, x);
	struct tsr_step_report fp32_report = { 0 };

	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!a.before[part])
			continue;
		at->coding[part].codec->decode(
			&at->coding[part], (const void *const *)at->plane[part], n, a.before[part]);
		memcpy(a.stepped[part], a.before[part], n * sizeof(float));
	}
	step_f32(at, a.stepped, grad, n, report);
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		if (!a.before[part])
			continue;
		at->coding[part].codec->encode(&at->coding[part], a.stepped[part], n,
					       at->plane[part], &report->encode[part]);
		at->coding[part].codec->decode(
			&at->coding[part], (const void *const *)at->plane[part], n, a.after[part]);
	}
	memcpy(a.fp32_before, a.fp32[TSR_PART_WEIGHT], n * sizeof(float));
	step_f32(at, a.fp32, grad, n, &fp32_report);
	add(piece, &a, n);
	piece->compare.underflow += report->encode[TSR_PART_MOMENTUM].scale_underflow +
				    report->encode[TSR_PART_VARIANCE].scale_underflow;
}

void tsr_replay_compare_idle(const struct tsr_replay_window *w, const struct tsr_replay_param *p,
			     uint64_t first, size_t n, float *x, struct tsr_replay_piece *piece)
{
	struct arrays a;

	if (!w->r->options->compare)
		return;
	a = place(w, p, first, x);
	for (unsigned part = 0; part < TSR_PARTS; part++) {
		const struct tsr_coding *coding = &p->coding[part];
		const void *plane[TSR_PLANES_MAX];

		if (!a.before[part])
			continue;
		for (unsigned i = 0; i < coding->codec->nplanes; i++)
			plane[i] = p->plane[part][i] + tsr_plane_nbytes(coding, i, first);
		coding->codec->decode(coding, plane, n, a.before[part]);
		a.stepped[part] = a.after[part] = a.before[part];
	}
	a.fp32_before = a.fp32[TSR_PART_WEIGHT];
	add(piece, &a, n);
}

/* --- Sums ------------------------------------------------------------------------------------ */

void tsr_replay_compare_commit(struct tsr_replay_window *w, size_t param, unsigned step,
			       const struct tsr_replay_piece *piece, bool begin, bool end)
{
	struct tsr_replay_sums *sums = w->compare;

	if (begin)
		sums->param[step] = piece->compare;
	else
		tsr_compare_merge(&sums->param[step], &piece->compare);
	if (!end)
		return;
	w->r->result->steps[w->first + step].tensors[param] = tsr_compare_figures(
		&sums->param[step], w->r->params[param].kinds);
	if (sums->any[step])
		tsr_compare_merge(&sums->total[step], &sums->param[step]);
	else
		sums->total[step] = sums->param[step];
	sums->any[step] = true;
}

void tsr_replay_compare_finish(struct tsr_replay_window *w)
{
	unsigned kinds = 0;

	for (size_t i = 0; i < w->r->nparams; i++)
		kinds |= w->r->params[i].kinds;
	for (unsigned i = 0; w->compare && i < w->n; i++) {
		if (w->compare->any[i])
			w->r->result->steps[w->first + i].total = tsr_compare_figures(
				&w->compare->total[i], kinds);
		w->compare->any[i] = false;
	}
}
