/* SPDX-License-Identifier: Apache-2.0 */
/* Audits of several checkpoints, such as those of one training run: figures by step. */
#include "audit/audit_figures.h"

#include <math.h>

#define LAST (TSR_AUDIT_QUANTILES - 1)

static void add_cell(struct tsr_audit_series *s, const struct tsr_audit_cell *cell)
{
	for (unsigned i = 0; i < s->n; i++) {
		if (s->cell[i] == cell)
			return;
	}
	if (cell && s->n < TSR_AUDIT_SERIES_MAX)
		s->cell[s->n++] = cell;
}

/* Where a codec is in another list; its length if it is not. */
static unsigned index_in(const struct tsr_audit_list *list, const struct tsr_codec *codec)
{
	unsigned i = 0;

	while (i < list->n && list->codings[i].codec != codec)
		i++;
	return i;
}

struct tsr_audit_series tsr_audit_series_of(const struct tsr_audit *a)
{
	const struct tsr_pack_options usual = tsr_pack_defaults();
	struct tsr_audit_series s = { .n = 0 };
	size_t n;
	const struct tsr_audit_cell *cells = tsr_audit_cells(a, &n);

	add_cell(&s, tsr_audit_best_pair(a));
	for (size_t i = 0; i < n; i++) {
		if (a->momenta.codings[cells[i].m].codec == usual.momentum.codec &&
		    a->variances.codings[cells[i].v].codec == usual.variance.codec)
			add_cell(&s, &cells[i]);
	}
	for (size_t i = 0; i < n && cells[i].n; i++)
		add_cell(&s, &cells[i]);
	return s;
}

double tsr_audit_series_nmse(const struct tsr_audit *a, const struct tsr_audit *last,
			     const struct tsr_audit_cell *cell)
{
	const struct tsr_audit_cell *here = tsr_audit_cell(
		a, index_in(&a->momenta, last->momenta.codings[cell->m].codec),
		index_in(&a->variances, last->variances.codings[cell->v].codec));

	return here && here->n ? here->nmse[LAST] : (double)NAN;
}
