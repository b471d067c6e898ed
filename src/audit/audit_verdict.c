/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of an audit: the codecs that its figures speak for. */
#include "audit/audit_figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "codec/state_forms.h"
#include "names/eps.h"

#define LAST (TSR_AUDIT_QUANTILES - 1)

/* Pairs whose errors differ by less are as good as each other. */
#define AS_GOOD 1.05

/* What a verdict asks of a codec, by coding. */
struct side {
	double nmse; /* of the worst tensor */
	bool stuck;
};

static struct side *judge(const struct tsr_audit *a, enum tsr_kind kind)
{
	const unsigned n = tsr_audit_list(a, kind)->n;
	struct side *sides = calloc(n + 1, sizeof(*sides));
	struct tsr_audit_column c;

	for (unsigned i = 0; sides && i < n; i++) {
		if (!tsr_audit_column(a, kind, i, &c)) {
			free(sides);
			return NULL;
		}
		sides[i] = (struct side){ c.quantile[TSR_AUDIT_NMSE][LAST], c.stuck > 0 };
	}
	return sides;
}

/* Whether a pair @x is a better verdict than @best, which may be NULL. */
static bool is_better(const struct tsr_audit_cell *x, const struct tsr_audit_cell *best,
		      const struct side *m, const struct side *v)
{
	if (!best)
		return true;
	const bool x_stuck = m[x->m].stuck || v[x->v].stuck;
	const bool stuck = m[best->m].stuck || v[best->v].stuck;

	return x_stuck != stuck ? stuck : v[x->v].nmse < v[best->v].nmse;
}

static const struct tsr_audit_cell *choose(const struct tsr_audit_cell *cells, size_t n,
					   const struct side *m, const struct side *v,
					   double bytes_max)
{
	const struct tsr_audit_cell *best = NULL;
	double most = 0;

	/* The first that is within the limits has the least error. */
	for (size_t i = 0; i < n; i++) {
		const struct tsr_audit_cell *c = &cells[i];
		const bool within = c->n && !c->nraw && c->bytes <= bytes_max &&
				    m[c->m].nmse <= TSR_AUDIT_NMSE_MAX &&
				    v[c->v].nmse <= TSR_AUDIT_NMSE_MAX;

		if (!within || (best && c->nmse[LAST] > most))
			continue;
		most = best ? most : AS_GOOD * c->nmse[LAST];
		best = is_better(c, best, m, v) ? c : best;
	}
	return best;
}

const struct tsr_audit_cell *tsr_audit_best_pair(const struct tsr_audit *a,
						 const struct tsr_audit_cell *cells, size_t n)
{
	struct side *m = judge(a, TSR_KIND_MOMENTUM), *v = judge(a, TSR_KIND_VARIANCE);
	const struct tsr_audit_cell *best = NULL;

	for (size_t i = 0; a->asked && i < n && !best; i++)
		best = cells[i].m == a->momentum && cells[i].v == a->variance ? &cells[i] : NULL;
	if (!a->asked && m && v)
		best = choose(cells, n, m, v, TSR_AUDIT_BYTES_MAX);
	if (!a->asked && best && tsr_update_level(best->nmse[LAST]) == TSR_FINDING_BAD)
		best = choose(cells, n, m, v, INFINITY);
	free(m);
	free(v);
	return best;
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

/* @cells are in the order of their errors. */
static void list_forms(const struct tsr_audit *a, const struct tsr_audit_cell *cells, size_t n,
		       struct tsr_audit_verdict *ret)
{
	const struct tsr_audit_cell *best = tsr_audit_best_pair(a, cells, n);

	ret->found = best && best->n && !best->nraw;
	if (ret->found)
		add_form(a, best, ret);
	for (size_t i = 0; i < n && ret->n < TSR_AUDIT_FORMS_MAX; i++) {
		if (&cells[i] != best && cells[i].n && !cells[i].nraw && is_named(a, &cells[i]))
			add_form(a, &cells[i], ret);
	}
}

/* --- Codecs of a kind ---------------------------------------------------------------------------- */

bool tsr_audit_best(const struct tsr_audit *a, enum tsr_kind kind, struct tsr_audit_column *ret)
{
	const struct tsr_codec *usual = tsr_pack_defaults().weight.codec;
	bool any = false;

	for (unsigned i = 0; i < tsr_audit_list(a, kind)->n; i++) {
		struct tsr_audit_column c;

		if (!tsr_audit_column(a, kind, i, &c) || !c.n || c.nraw)
			continue;
		if (any && c.coding->codec != usual &&
		    c.quantile[TSR_AUDIT_NMSE][LAST] >= ret->quantile[TSR_AUDIT_NMSE][LAST])
			continue;
		*ret = c;
		any = true;
		if (c.coding->codec == usual)
			break;
	}
	return any;
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

enum tsr_status tsr_audit_judge(const struct tsr_audit *a, struct tsr_audit_verdict *ret,
				struct tsr_err *err)
{
	struct tsr_audit_cell *cells;
	const size_t n = tsr_audit_cells(a, &cells);
	struct tsr_audit_column weight;

	*ret = (struct tsr_audit_verdict){ 0 };
	if (!cells)
		return tsr_fail_nomem(err, a->name);
	if (a->npairs)
		list_forms(a, cells, n, ret);
	if (tsr_audit_best(a, TSR_KIND_WEIGHT, &weight)) {
		ret->weight = weight.coding;
		ret->weight_nmse = weight.quantile[TSR_AUDIT_NMSE][LAST];
		ret->weight_bytes = weight.bytes;
		measure_steps(a, weight.coding, ret);
	}
	free(cells);
	return TSR_OK;
}
