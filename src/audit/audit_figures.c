/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of an audit over all tensors. */
#include "audit/audit_figures.h"
#include "audit/audit_work.h"
#include "base/fail.h"

/* --- Of a tensor -------------------------------------------------------------------------------- */

static double share(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

/* Their names, and where those of a trial @x of a tensor @t are. */
#define FIGURES(X) \
	X(NMSE, "nmse", x->nmse) \
	X(MAX_ABS, "max_abs", (double)x->max_abs) \
	X(MEAN_REL, "mean_rel", x->mean_rel) \
	X(ZEROED, "zeroed", share(x->zeroed, t->tensor->numel)) \
	X(UNDERFLOW, "scale_underflow", (double)x->scale_underflow) \
	X(OVERFLOW, "scale_overflow", (double)x->scale_overflow) \
	X(STUCK, "stuck", share(x->stuck, x->groups)) \
	X(RANGE_MEAN, "range_mean", (double)x->range_mean) \
	X(RANGE_MAX, "range_max", (double)x->range_max) \
	X(BYTES, "bytes_per_element", share(x->nbytes, t->tensor->numel))

const char *tsr_audit_figure_name(enum tsr_audit_figure figure)
{
#define NAME(id, name, value) [TSR_AUDIT_##id] = (name),
	static const char *const names[TSR_AUDIT_FIGURES] = { FIGURES(NAME) };

	return names[figure];
}

static double figure_of(const struct tsr_audit_tensor *t, const struct tsr_audit_trial *x,
			enum tsr_audit_figure figure)
{
#define VALUE(id, name, value) [TSR_AUDIT_##id] = (value),
	const double by_figure[TSR_AUDIT_FIGURES] = { FIGURES(VALUE) };

	return by_figure[figure];
}

static bool has_figures(const struct tsr_audit_tensor *t)
{
	return t->fault == TSR_AUDIT_SOUND || t->fault == TSR_AUDIT_ZERO;
}

bool tsr_audit_counts(const struct tsr_audit_tensor *t, unsigned coding)
{
	return has_figures(t) && t->trials[coding].measured && t->trials[coding].raw == TSR_RAW_NO;
}

/* --- Of a coding -------------------------------------------------------------------------------- */

static void add_tensor(struct tsr_audit_column *c, const struct tsr_audit_tensor *t,
		       const struct tsr_audit_trial *trial)
{
	c->n++;
	c->elements += t->tensor->numel;
	c->zeroed += trial->zeroed;
	c->underflow += trial->scale_underflow;
	c->overflow += trial->scale_overflow;
	c->groups += trial->groups;
	c->stuck += trial->stuck;
	c->bytes += (double)trial->nbytes;
}

/* A figure of all tensors of a kind that count, into @values; returns how many. */
static size_t collect(const struct tsr_audit *a, enum tsr_kind kind, unsigned coding,
		      enum tsr_audit_figure figure, double *values)
{
	size_t n = 0;

	for (size_t i = 0; i < a->ntensors; i++) {
		const struct tsr_audit_tensor *t = &a->tensors[i];

		if (t->tensor->kind == kind && tsr_audit_counts(t, coding))
			values[n++] = figure_of(t, &t->trials[coding], figure);
	}
	return n;
}

/* @values: room for one per tensor. */
static struct tsr_audit_column column_of(const struct tsr_audit *a, enum tsr_kind kind,
					 unsigned coding, double *values)
{
	struct tsr_audit_column c = { .coding = &tsr_audit_list(a, kind)->codings[coding] };
	double most = -1;

	for (size_t i = 0; i < a->ntensors; i++) {
		const struct tsr_audit_tensor *t = &a->tensors[i];

		if (t->tensor->kind != kind || !has_figures(t))
			continue;
		if (!tsr_audit_counts(t, coding)) {
			c.nraw++;
			continue;
		}
		add_tensor(&c, t, &t->trials[coding]);
		if (t->trials[coding].nmse > most) {
			most = t->trials[coding].nmse;
			c.worst = i;
		}
	}
	c.bytes = c.elements ? c.bytes / (double)c.elements : 0;
	for (unsigned f = 0; f < TSR_AUDIT_FIGURES; f++)
		tsr_audit_quantiles(values,
				    collect(a, kind, coding, (enum tsr_audit_figure)f, values),
				    c.quantile[f]);
	return c;
}

/* --- Of a pair of tensors ----------------------------------------------------------------------- */

void tsr_audit_put_update(struct tsr_audit_pair *p, size_t i, const struct tsr_update_measure *u)
{
	((struct tsr_audit_update *)p->updates)[i] = (struct tsr_audit_update){
		.nmse = tsr_update_measure_nmse(u),
		.exposed = u->exposed,
		.overflow = u->overflow,
		.max_after = u->max_after,
		.measured = true
	};
}

void tsr_audit_put_before(struct tsr_audit_pair *p, const struct tsr_update_measure *as_it_is)
{
	for (unsigned i = 0; i < TSR_MEASURE_LANES; i++)
		p->sum += as_it_is->sum_uu[i];
	p->max_before = as_it_is->max_before;
	p->nonfinite = as_it_is->nonfinite;
}

/* --- Of a pair of codings ----------------------------------------------------------------------- */

/* Whether a side can be stored so; bytes are added. */
static bool add_side(const struct tsr_audit_tensor *t, unsigned coding, double *bytes)
{
	if (!tsr_audit_counts(t, coding))
		return false;
	*bytes += (double)t->trials[coding].nbytes;
	return true;
}

/* One pair of tensors; false if the codings cannot hold it. */
static bool add_pair(struct tsr_audit_cell *c, const struct tsr_audit *a, size_t i, double *worst)
{
	const struct tsr_audit_pair *p = &a->pairs[i];
	const struct tsr_audit_update *u = tsr_audit_update(a, i, c->m, c->v);
	double bytes = 0;

	if (!u->measured || !add_side(&a->tensors[p->momentum], c->m, &bytes) ||
	    (p->variance != p->momentum && !add_side(&a->tensors[p->variance], c->v, &bytes)))
		return false;
	if (c->n == 0 || u->nmse > *worst) {
		*worst = u->nmse;
		c->worst = i;
	}
	c->bytes += bytes;
	c->exposed += u->exposed;
	c->overflow += u->overflow;
	c->max_before = p->max_before > c->max_before ? p->max_before : c->max_before;
	c->max_after = u->max_after > c->max_after ? u->max_after : c->max_after;
	c->n++;
	return true;
}

/* @values: room for one per pair of tensors. */
static struct tsr_audit_cell cell_of(const struct tsr_audit *a, unsigned m, unsigned v,
				     double *values)
{
	struct tsr_audit_cell c = { .m = m, .v = v };
	double worst = 0, elements = 0;

	for (size_t i = 0; i < a->npairs; i++) {
		if (!add_pair(&c, a, i, &worst)) {
			c.nraw++;
			continue;
		}
		values[c.n - 1] = tsr_audit_update(a, i, m, v)->nmse;
		elements += (double)a->tensors[a->pairs[i].momentum].tensor->numel;
	}
	tsr_audit_quantiles(values, c.n, c.nmse);
	c.bytes = elements > 0 ? c.bytes / elements : 0;
	return c;
}

double tsr_audit_pooled(const struct tsr_audit *a, unsigned m, unsigned v)
{
	double error = 0, sum = 0;

	for (size_t i = 0; i < a->npairs; i++) {
		const struct tsr_audit_update *u = tsr_audit_update(a, i, m, v);

		if (!u->measured || !(a->pairs[i].sum > 0))
			continue;
		error += u->nmse * a->pairs[i].sum;
		sum += a->pairs[i].sum;
	}
	return sum > 0 ? error / sum : 0;
}

static int compare(const void *a, const void *b)
{
	const struct tsr_audit_cell *x = a, *y = b;
	const double xw = x->nmse[TSR_AUDIT_QUANTILES - 1], yw = y->nmse[TSR_AUDIT_QUANTILES - 1];

	if (!x->nraw != !y->nraw)
		return x->nraw ? 1 : -1;
	if (xw != yw)
		return xw < yw ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	if (x->m != y->m)
		return x->m < y->m ? -1 : 1;
	return (x->v > y->v) - (x->v < y->v);
}

/* --- Of all of them ------------------------------------------------------------------------------ */

enum tsr_status tsr_audit_sum_up(struct tsr_auditing *a, struct tsr_err *err)
{
	struct tsr_audit *pub = &a->pub;
	TSR_OWNED(free) double *values = NULL;

	/* There are no more pairs than tensors. */
	TSR_TRY(TSR_NEW(&values, pub->ntensors + 1, err, "audit"));
	for (unsigned kind = TSR_KIND_WEIGHT; kind <= TSR_KIND_VARIANCE; kind *= 2) {
		struct tsr_audit_column **to = &a->columns[tsr_audit_kind((enum tsr_kind)kind)];
		const unsigned n = tsr_audit_list(pub, (enum tsr_kind)kind)->n;

		TSR_TRY(TSR_ARENA_NEW(to, n + 1, a->arena, tsr_audit_no_room(a, err)));
		for (unsigned i = 0; i < n; i++)
			(*to)[i] = column_of(pub, (enum tsr_kind)kind, i, values);
	}
	a->ncells = (size_t)pub->momenta.n * pub->variances.n;
	TSR_TRY(TSR_ARENA_NEW(&a->cells, a->ncells + 1, a->arena, tsr_audit_no_room(a, err)));
	for (size_t i = 0; i < a->ncells; i++)
		a->cells[i] = cell_of(pub, (unsigned)(i / pub->variances.n),
				      (unsigned)(i % pub->variances.n), values);
	qsort(a->cells, a->ncells, sizeof(*a->cells), compare);
	return TSR_OK;
}

const struct tsr_audit_column *tsr_audit_columns(const struct tsr_audit *a, enum tsr_kind kind)
{
	return ((const struct tsr_auditing *)a)->columns[tsr_audit_kind(kind)];
}

const struct tsr_audit_cell *tsr_audit_cells(const struct tsr_audit *a, size_t *n_ret)
{
	const struct tsr_auditing *auditing = (const struct tsr_auditing *)a;

	*n_ret = auditing->ncells;
	return auditing->cells;
}

const struct tsr_audit_cell *tsr_audit_cell(const struct tsr_audit *a, unsigned m, unsigned v)
{
	size_t n;
	const struct tsr_audit_cell *cells = tsr_audit_cells(a, &n);

	for (size_t i = 0; i < n; i++) {
		if (cells[i].m == m && cells[i].v == v)
			return &cells[i];
	}
	return NULL;
}
