/* SPDX-License-Identifier: Apache-2.0 */
/* Audits of several checkpoints, such as those of one training run: figures by step. */
#include "report/audit/audit_series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/format.h"

#define NAME_COLUMNS 32
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
	const struct tsr_audit_cell *verdict = tsr_audit_verdict(a, cells, n);
	const struct tsr_audit_cell *usual = tsr_audit_usual(a, cells, n);

	if (verdict)
		add_column(c, verdict);
	if (usual)
		add_column(c, usual);
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

static void put_pair_rows(struct tsr_audit *const *audits, size_t n,
			  const struct tsr_audit_series *c, struct tsr_text *out)
{
	const struct tsr_audit *last = audits[n - 1];

	tsr_text_printf(out, "\n%-*s", NAME_COLUMNS, "worst update NMSE");
	for (unsigned i = 0; i < c->n; i++)
		tsr_text_printf(out, " %11s", last->momenta.codings[c->cell[i].m].codec->name);
	tsr_text_printf(out, "\n%-*s", NAME_COLUMNS, "");
	for (unsigned i = 0; i < c->n; i++)
		tsr_text_printf(out, " %11s", last->variances.codings[c->cell[i].v].codec->name);
	tsr_text_puts(out, "\n");
	for (size_t i = 0; i < n; i++) {
		tsr_text_printf(out, "%-*s", NAME_COLUMNS,
				tsr_format_name(audits[i]->name, NAME_COLUMNS).text);
		for (unsigned k = 0; k < c->n; k++) {
			double nmse;

			if (!tsr_audit_series_nmse(audits[i], last, &c->cell[k], &nmse))
				out->failed = true;
			if (isnan(nmse))
				tsr_text_printf(out, " %11s", "-");
			else
				tsr_text_printf(out, " %11.1e", nmse);
		}
		tsr_text_puts(out, "\n");
	}
}

static void put_weight_rows(struct tsr_audit *const *audits, size_t n, struct tsr_text *out)
{
	struct tsr_audit_column c;

	if (!audits[n - 1]->weights.n)
		return;
	tsr_text_printf(out, "\n%-*s %11s %11s\n", NAME_COLUMNS, "weights", "codec", "worst NMSE");
	for (size_t i = 0; i < n; i++) {
		if (!tsr_audit_best_weight(audits[i], &c))
			continue;
		tsr_text_printf(out, "%-*s %11s %11.1e\n", NAME_COLUMNS,
				tsr_format_name(audits[i]->name, NAME_COLUMNS).text,
				c.coding->codec->name, c.quantile[TSR_AUDIT_NMSE][LAST]);
	}
}

void tsr_audit_put_series(struct tsr_audit *const *audits, size_t n, struct tsr_text *out)
{
	struct tsr_audit_series columns = { .n = 0 };

	if (!tsr_audit_series_of(audits[n - 1], &columns)) {
		out->failed = true;
		return;
	}
	if (audits[n - 1]->npairs)
		put_pair_rows(audits, n, &columns, out);
	put_weight_rows(audits, n, out);
}
