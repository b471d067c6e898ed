/* SPDX-License-Identifier: Apache-2.0 */
/* What the charts and the page of an audit show: figures of its codecs, computed once. */
#include "report/charts/charts.h"

#include <stdio.h>
#include <stdlib.h>

static bool fill_panel(const struct tsr_audit *a, struct tsr_audit_panel *p)
{
	const struct tsr_audit_list *list = tsr_audit_list(a, p->kind);

	p->columns = calloc(list->n + 1, sizeof(*p->columns));
	p->worst = calloc(list->n + 1, sizeof(*p->worst));
	for (unsigned i = 0; p->columns && p->worst && i < list->n; i++) {
		double most = -1;

		if (!tsr_audit_column(a, p->kind, i, &p->columns[p->n]))
			return false;
		for (size_t k = 0; k < a->ntensors; k++) {
			const struct tsr_audit_tensor *t = &a->tensors[k];

			if (t->tensor->kind != p->kind || !tsr_audit_counts(t, i) ||
			    !(t->trials[i].nmse > most))
				continue;
			most = t->trials[i].nmse;
			p->worst[p->n] = k;
		}
		p->n += p->columns[p->n].n > 0;
	}
	return p->columns && p->worst;
}

bool tsr_audit_view_of(struct tsr_audit *const *audits, size_t n, struct tsr_audit_view *ret)
{
	const struct tsr_audit *a = audits[n - 1];
	struct tsr_audit_series *s = &ret->series;
	bool ok = true;

	*ret = (struct tsr_audit_view){ .audit = a,
					.audits = audits,
					.naudits = n,
					.panel = {
						{ .kind = TSR_KIND_MOMENTUM, .title = "Momenta" },
						{ .kind = TSR_KIND_VARIANCE, .title = "Variances" },
						{ .kind = TSR_KIND_WEIGHT, .title = "Weights" } } };
	for (unsigned i = 0; i < TSR_AUDIT_PANELS; i++)
		ok = fill_panel(a, &ret->panel[i]) && ok;
	ret->ncells = tsr_audit_cells(a, &ret->cells);
	if (ret->cells && a->npairs)
		ret->best = tsr_audit_best_pair(a, ret->cells, ret->ncells);
	if (n == 1 || !a->npairs)
		return ok && ret->cells;
	ok = tsr_audit_series_of(a, s) && ok;
	ret->nmse = calloc(n * s->n + 1, sizeof(*ret->nmse));
	for (size_t i = 0; ret->nmse && i < n * s->n; i++)
		ok = tsr_audit_series_nmse(audits[i / s->n], a, &s->cell[i % s->n],
					   &ret->nmse[i]) &&
		     ok;
	return ok && ret->cells && ret->nmse;
}

void tsr_audit_view_free(struct tsr_audit_view *v)
{
	for (unsigned i = 0; i < TSR_AUDIT_PANELS; i++) {
		free(v->panel[i].columns);
		free(v->panel[i].worst);
	}
	free(v->cells);
	free(v->nmse);
}

/* Without the zeros that printf() puts into exponents. */
void tsr_audit_put_error(double value, int digits, struct tsr_text *out)
{
	char text[40];
	char *exponent;

	if (isinf(value)) {
		tsr_text_puts(out, "\xe2\x88\x9e");
		return;
	}
	if (!(value > 0)) {
		tsr_text_puts(out, "0");
		return;
	}
	snprintf(text, sizeof(text), "%.*e", digits, value);
	exponent = strchr(text, 'e');
	tsr_text_put(out, text, (size_t)(exponent - text));
	tsr_text_printf(out, "e%d", atoi(exponent + 1));
}
