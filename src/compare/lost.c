/* SPDX-License-Identifier: Apache-2.0 */
/* What decoded tensors lost: values that became zero, signs of zeros, and updates that changed. */
#include "compare/lost.h"

#include <stdio.h>

#include "ckpt/checkpoint_model.h"
#include "compare/comparison.h"
#include "pack/packing.h"

static uint64_t *zeroed_of(struct tsr_lost *l, enum tsr_kind kind)
{
	return kind == TSR_KIND_WEIGHT	   ? &l->weights
	       : kind == TSR_KIND_MOMENTUM ? &l->momenta
	       : kind == TSR_KIND_VARIANCE ? &l->variances
					   : &l->others;
}

/* Written so that NaN is the largest. */
static void add_nmse(struct tsr_lost *l, const char *name, double nmse)
{
	if (l->nupdates && nmse <= l->nmse)
		return;
	snprintf(l->worst, sizeof(l->worst), "%s", name);
	l->nmse = nmse;
}

static void add_update(struct tsr_lost *l, const char *name, const struct tsr_update_measured *u)
{
	const double nmse = u->nmse;

	add_nmse(l, name, nmse);
	l->nupdates++;
	l->nbad += tsr_update_level(nmse) == TSR_FINDING_BAD;
	l->exposed += u->exposed;
	l->undefined += u->nonfinite;
	l->max_before = u->max_before > l->max_before ? u->max_before : l->max_before;
	l->max_after = u->max_after > l->max_after ? u->max_after : l->max_after;
}

static void add_step(struct tsr_lost *l, const char *name, double step, double lr)
{
	if (!(l->lr > 0) || !(step <= l->step)) {
		snprintf(l->step_worst, sizeof(l->step_worst), "%s", name);
		l->step = step;
	}
	l->lr = l->lr > 0 && l->lr < lr ? l->lr : lr;
}

/* Add a tensor; @m: NULL if it is stored as it is; @u, @step: as in struct tsr_packed_tensor. */
static void add(struct tsr_lost *l, const struct tsr_tensor *t, const struct tsr_measured *m,
		const struct tsr_update_measured *u, double step, double lr)
{
	if (step >= 0 && lr > 0)
		add_step(l, t->name, step, lr);
	if (m) {
		*zeroed_of(l, t->kind) += m->flushed;
		l->signs += m->sign_lost;
	}
	if (u->n)
		add_update(l, t->name, u);
	else if (m && t->kind == TSR_KIND_VARIANCE && m->exact != m->n)
		*(t->partner ? &l->unlike : &l->alone) += 1;
}

struct tsr_lost tsr_lost_in_packing(const struct tsr_packing *p)
{
	struct tsr_lost l = { .eps = p->eps, .eps_known = p->eps_known };

	for (size_t i = 0; i < p->source->ntensors; i++) {
		const struct tsr_tensor *t = &p->source->tensors[i];

		add(&l, t, t->coding.codec ? &p->tensors[i].measure : NULL, &p->tensors[i].update,
		    p->tensors[i].weight_step, p->lr);
	}
	return l;
}

struct tsr_lost tsr_lost_in_verification(const struct tsr_verification *v)
{
	struct tsr_lost l = { .eps = v->eps, .eps_known = v->eps_known };

	for (size_t i = 0; i < v->checked->ntensors; i++) {
		const struct tsr_tensor *t = &v->checked->tensors[i];

		add(&l, t, t->coding.codec ? &v->tensors[i].measure : NULL, &v->tensors[i].update,
		    v->tensors[i].weight_step, v->lr);
	}
	return l;
}

/* An eps counts where updates were measured with it. */
static void merge_eps(struct tsr_lost *into, const struct tsr_lost *from)
{
	if (!into->nupdates) {
		into->eps = from->eps;
		into->eps_known = from->eps_known;
		into->eps_differs = from->eps_differs;
	} else if (from->nupdates) {
		into->eps_differs |= from->eps_differs || from->eps != into->eps ||
				     from->eps_known != into->eps_known;
	}
}

void tsr_lost_merge(struct tsr_lost *into, const struct tsr_lost *from)
{
	merge_eps(into, from);
	if (from->nupdates)
		add_nmse(into, from->worst, from->nmse);
	if (from->lr > 0)
		add_step(into, from->step_worst, from->step, from->lr);
	into->weights += from->weights;
	into->momenta += from->momenta;
	into->variances += from->variances;
	into->others += from->others;
	into->exposed += from->exposed;
	into->signs += from->signs;
	into->nupdates += from->nupdates;
	into->nbad += from->nbad;
	into->alone += from->alone;
	into->unlike += from->unlike;
	into->undefined += from->undefined;
	into->max_before = from->max_before > into->max_before ? from->max_before
							       : into->max_before;
	into->max_after = from->max_after > into->max_after ? from->max_after : into->max_after;
}
