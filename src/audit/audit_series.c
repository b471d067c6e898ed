/* SPDX-License-Identifier: Apache-2.0 */
/* Audits of several checkpoints, such as those of one training run: figures by step. */
#include "audit/audit_series.h"

#include <math.h>
#include <stdlib.h>

#define LAST (TSR_AUDIT_QUANTILES - 1)

static void add_column(struct tsr_audit_series *c, const struct tsr_audit_cell *cell)
{
	for (unsigned i = 0; i < c->n; i++) {
		if (c->cell[i].m == cell->m && c->cell[i].v == cell->v)
			return;
	}
	if (c->n < TSR_AUDIT_SERIES_MAX)
		c->cell[c->n++] = *cell;
}

bool tsr_audit_series_of(const struct tsr_audit *a, struct tsr_audit_series *c)
{
	struct tsr_audit_cell *cells;
	const size_t n = tsr_audit_cells(a, &cells);
	const struct tsr_audit_cell *verdict = tsr_audit_best_pair(a, cells, n);
	const struct tsr_pack_options usual = tsr_pack_defaults();

	if (verdict)
		add_column(c, verdict);
	for (size_t i = 0; i < n; i++) {
		if (a->momenta.codings[cells[i].m].codec == usual.momentum.codec &&
		    a->variances.codings[cells[i].v].codec == usual.variance.codec)
			add_column(c, &cells[i]);
	}
	for (size_t i = 0; i < n && cells[i].n; i++)
		add_column(c, &cells[i]);
	free(cells);
	return cells != NULL;
}

/* Where a codec is in another list; its length if it is not. */
static unsigned index_in(const struct tsr_audit_list *list, const struct tsr_coding *coding)
{
	unsigned i = 0;

	while (i < list->n && list->codings[i].codec != coding->codec)
		i++;
	return i;
}

bool tsr_audit_series_nmse(const struct tsr_audit *a, const struct tsr_audit *last,
			   const struct tsr_audit_cell *cell, double *ret)
{
	const unsigned m = index_in(&a->momenta, &last->momenta.codings[cell->m]);
	const unsigned v = index_in(&a->variances, &last->variances.codings[cell->v]);
	struct tsr_audit_cell here;

	*ret = NAN;
	if (m == a->momenta.n || v == a->variances.n)
		return true;
	if (!tsr_audit_cell(a, m, v, &here))
		return false;
	if (here.n)
		*ret = here.nmse[LAST];
	return true;
}
