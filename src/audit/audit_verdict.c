/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of an audit: the codecs that its figures speak for. */
#include "audit/audit_figures.h"

#include <stdlib.h>

#include "base/fail.h"

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
					   const struct side *m, const struct side *v)
{
	const struct tsr_audit_cell *best = NULL;
	double most = 0;

	/* The first that is within the limits has the least error. */
	for (size_t i = 0; i < n; i++) {
		const struct tsr_audit_cell *c = &cells[i];
		const bool within = c->n && !c->nraw && c->bytes <= TSR_AUDIT_BYTES_MAX &&
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
	const struct tsr_audit_cell *best = m && v ? choose(cells, n, m, v) : NULL;

	free(m);
	free(v);
	return best;
}

const struct tsr_audit_cell *tsr_audit_usual(const struct tsr_audit *a,
					     const struct tsr_audit_cell *cells, size_t n)
{
	const struct tsr_pack_options usual = tsr_pack_defaults();

	for (size_t i = 0; i < n; i++) {
		if (a->momenta.codings[cells[i].m].codec == usual.momentum.codec &&
		    a->variances.codings[cells[i].v].codec == usual.variance.codec)
			return &cells[i];
	}
	return NULL;
}

/* What a weight may take per element to be the verdict. */
#define WEIGHT_BYTES_MAX 3.0

bool tsr_audit_best(const struct tsr_audit *a, enum tsr_kind kind, double most_bytes,
		    struct tsr_audit_column *ret)
{
	bool any = false;

	for (unsigned i = 0; i < tsr_audit_list(a, kind)->n; i++) {
		struct tsr_audit_column c;

		if (!tsr_audit_column(a, kind, i, &c) || !c.n || c.nraw || c.bytes > most_bytes)
			continue;
		if (any && c.quantile[TSR_AUDIT_NMSE][LAST] >= ret->quantile[TSR_AUDIT_NMSE][LAST])
			continue;
		*ret = c;
		any = true;
	}
	return any;
}

bool tsr_audit_best_weight(const struct tsr_audit *a, struct tsr_audit_column *ret)
{
	return tsr_audit_best(a, TSR_KIND_WEIGHT, WEIGHT_BYTES_MAX, ret);
}

enum tsr_status tsr_audit_judge(const struct tsr_audit *a, struct tsr_audit_verdict *ret,
				struct tsr_err *err)
{
	struct tsr_audit_cell *cells;
	const size_t n = tsr_audit_cells(a, &cells);
	const struct tsr_audit_cell *best;
	struct tsr_audit_column weight;

	*ret = (struct tsr_audit_verdict){ 0 };
	if (!cells)
		return tsr_fail_nomem(err, a->name);
	best = a->npairs ? tsr_audit_best_pair(a, cells, n) : NULL;
	if (best) {
		ret->momentum = &a->momenta.codings[best->m];
		ret->variance = &a->variances.codings[best->v];
		ret->update_nmse = best->nmse[LAST];
		ret->bytes = best->bytes;
	}
	if (tsr_audit_best_weight(a, &weight)) {
		ret->weight = weight.coding;
		ret->weight_nmse = weight.quantile[TSR_AUDIT_NMSE][LAST];
		ret->weight_bytes = weight.bytes;
	}
	free(cells);
	return TSR_OK;
}
