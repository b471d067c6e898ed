/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of an audit: the codecs that its figures speak for. */
#include "audit/audit_figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/state_forms.h"
#include "names/eps.h"

#define LAST (TSR_AUDIT_QUANTILES - 1)

/* Pairs whose errors differ by less are as good as each other. */
#define AS_GOOD 1.05

/* The NMSE of the tensor for which it is largest. */
static double worst_of(const struct tsr_audit_column *c)
{
	return c->quantile[TSR_AUDIT_NMSE][LAST];
}

/* The columns of a pair's codings. */
struct sides {
	const struct tsr_audit_column *m, *v;
};

static bool has_stuck(const struct sides *s, const struct tsr_audit_cell *c)
{
	return s->m[c->m].stuck || s->v[c->v].stuck;
}

/* Whether a pair @x is a better verdict than @best, which may be NULL. */
static bool is_better(const struct sides *s, const struct tsr_audit_cell *x,
		      const struct tsr_audit_cell *best)
{
	if (!best || has_stuck(s, x) != has_stuck(s, best))
		return !best || has_stuck(s, best);
	return worst_of(&s->v[x->v]) < worst_of(&s->v[best->v]);
}

static const struct tsr_audit_cell *choose(const struct tsr_audit *a, double bytes_max)
{
	const struct sides s = { tsr_audit_columns(a, TSR_KIND_MOMENTUM),
				 tsr_audit_columns(a, TSR_KIND_VARIANCE) };
	const struct tsr_audit_cell *best = NULL;
	double most = 0;
	size_t n;
	const struct tsr_audit_cell *cells = tsr_audit_cells(a, &n);

	/* The first that is within the limits has the least error. */
	for (const struct tsr_audit_cell *c = cells; c < cells + n; c++) {
		const bool within = c->n && !c->nraw && c->bytes <= bytes_max &&
				    worst_of(&s.m[c->m]) <= TSR_AUDIT_NMSE_MAX &&
				    worst_of(&s.v[c->v]) <= TSR_AUDIT_NMSE_MAX;

		if (!within || (best && c->nmse[LAST] > most))
			continue;
		most = best ? most : AS_GOOD * c->nmse[LAST];
		best = is_better(&s, c, best) ? c : best;
	}
	return best;
}

const struct tsr_audit_cell *tsr_audit_best_pair(const struct tsr_audit *a)
{
	const struct tsr_audit_cell *best;

	if (a->asked)
		return tsr_audit_cell(a, a->momentum, a->variance);
	best = choose(a, TSR_AUDIT_BYTES_MAX);
	return best && tsr_update_level(best->nmse[LAST]) == TSR_FINDING_BAD ? choose(a, INFINITY)
									     : best;
}

/* --- Forms --------------------------------------------------------------------------------------- */

static bool is_coding(const struct tsr_coding *a, const struct tsr_coding *b)
{
	return a->codec == b->codec && (a->scale == b->scale || !a->codec->grouped);
}

static bool is_cell_of(const struct tsr_audit *a, const struct tsr_audit_cell *c,
		       const struct tsr_coding *m, const struct tsr_coding *v)
{
	return is_coding(&a->momenta.codings[c->m], m) && is_coding(&a->variances.codings[c->v], v);
}

/* Its name as an option takes it. */
static void name_form(const struct tsr_audit *a, const struct tsr_audit_cell *c, char *name,
		      size_t room)
{
	struct tsr_coding m, v;
	const char *form;

	for (unsigned i = 0; (form = tsr_state_form_at(i)); i++) {
		if (!tsr_state_form(form, &m, &v) || !is_cell_of(a, c, &m, &v))
			continue;
		snprintf(name, room, "%s", form);
		return;
	}
	snprintf(name, room, "%s/%s", a->momenta.codings[c->m].codec->name,
		 a->variances.codings[c->v].codec->name);
}

static void add_form(const struct tsr_audit *a, const struct tsr_audit_cell *c,
		     struct tsr_audit_verdict *to)
{
	const struct tsr_pack_options usual = tsr_pack_defaults();
	struct tsr_audit_form *f = &to->form[to->n++];

	name_form(a, c, f->name, sizeof(f->name));
	f->momentum = &a->momenta.codings[c->m];
	f->variance = &a->variances.codings[c->v];
	f->update_nmse = c->nmse[LAST];
	f->median = c->nmse[TSR_AUDIT_MEDIAN];
	f->level = tsr_update_level(f->update_nmse);
	f->bytes = c->bytes;
	f->worst = a->tensors[a->pairs[c->worst].variance].tensor->name;
	f->usual = is_cell_of(a, c, &usual.momentum, &usual.variance);
}

/* Whether a pair of codings has a name, or is what more bytes give. */
static bool is_named(const struct tsr_audit *a, const struct tsr_audit_cell *c)
{
	char name[64];

	name_form(a, c, name, sizeof(name));
	return !strchr(name, '/') || strcmp(name, "bf16/bf16") == 0;
}

static void list_forms(const struct tsr_audit *a, struct tsr_audit_verdict *ret)
{
	const struct tsr_audit_cell *best = tsr_audit_best_pair(a);
	size_t n;
	const struct tsr_audit_cell *cells = tsr_audit_cells(a, &n);

	ret->found = best && best->n && !best->nraw;
	if (ret->found)
		add_form(a, best, ret);
	for (size_t i = 0; i < n && ret->n < TSR_AUDIT_FORMS_MAX; i++) {
		if (&cells[i] != best && cells[i].n && !cells[i].nraw && is_named(a, &cells[i]))
			add_form(a, &cells[i], ret);
	}
}

/* --- Codecs of a kind ---------------------------------------------------------------------------- */

const struct tsr_audit_column *tsr_audit_best(const struct tsr_audit *a, enum tsr_kind kind)
{
	const struct tsr_codec *usual = tsr_pack_defaults().weight.codec;
	const struct tsr_audit_column *columns = tsr_audit_columns(a, kind), *best = NULL;

	for (unsigned i = 0; i < tsr_audit_list(a, kind)->n; i++) {
		const struct tsr_audit_column *c = &columns[i];

		if (!c->n || c->nraw)
			continue;
		if (c->coding->codec == usual)
			return c;
		if (!best || worst_of(c) < worst_of(best))
			best = c;
	}
	return best;
}

/* The audited tensor of this name; they are in the order of the checkpoint. */
static const struct tsr_audit_tensor *find_tensor(const struct tsr_audit *a, const char *name)
{
	const struct tsr_tensor *t = name ? tsr_checkpoint_find(a->source, name) : NULL;
	size_t low = 0, high = a->ntensors;

	while (t && low < high) {
		const size_t middle = low + (high - low) / 2;

		if (a->tensors[middle].tensor < t)
			low = middle + 1;
		else
			high = middle;
	}
	return t && low < a->ntensors && a->tensors[low].tensor == t ? &a->tensors[low] : NULL;
}

/* What the coding does to the weights of all pairs, in steps. */
static void measure_steps(const struct tsr_audit *a, const struct tsr_coding *coding,
			  struct tsr_audit_verdict *ret)
{
	const size_t i = (size_t)(coding - a->weights.codings);
	const double lr = tsr_names_lr(a->source);

	for (size_t k = 0; lr > 0 && k < a->npairs; k++) {
		const struct tsr_tensor *v = a->tensors[a->pairs[k].variance].tensor;
		const struct tsr_audit_tensor *w = find_tensor(a, v->weight);
		struct tsr_measured m = { .n = 0 };
		struct tsr_update_measured u = { .n = v->numel };
		double step;

		if (!w || w->tensor->kind != TSR_KIND_WEIGHT || w->tensor->numel != v->numel ||
		    !tsr_audit_counts(w, (unsigned)i))
			continue;
		m.rms_error = w->trials[i].rms_error;
		u.rms = sqrt(a->pairs[k].sum / (double)v->numel);
		step = tsr_weight_step(&m, &u, lr);
		if (ret->lr > 0 && step <= ret->weight_step)
			continue;
		ret->lr = lr;
		ret->weight_step = step;
		ret->weight_step_worst = w->tensor->name;
	}
}

void tsr_audit_judge(const struct tsr_audit *a, struct tsr_audit_verdict *ret)
{
	const struct tsr_audit_column *weight = tsr_audit_best(a, TSR_KIND_WEIGHT);

	*ret = (struct tsr_audit_verdict){ 0 };
	if (a->npairs)
		list_forms(a, ret);
	if (weight) {
		ret->weight = weight->coding;
		ret->weight_nmse = worst_of(weight);
		ret->weight_bytes = weight->bytes;
		measure_steps(a, weight->coding, ret);
	}
}
