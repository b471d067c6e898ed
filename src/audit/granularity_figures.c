/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit floats by granularity over all tensors, and what follows from it. */
#include "base/scope.h"
#include "audit/granularity_figures.h"

#include <stdlib.h>
#include <string.h>

#include "tersor/audit.h"

unsigned tsr_granularity_whole(unsigned index)
{
	return index / TSR_GRANULARITY_SIZES * TSR_GRANULARITY_SIZES;
}

unsigned tsr_granularity_reference(unsigned index)
{
	unsigned i = tsr_granularity_whole(index);

	while (strcmp(tsr_granularity_get(i)->name, "1x16") != 0)
		i++;
	return i;
}

bool tsr_granularity_counts(const struct tsr_granularity_tensor *t)
{
	return t->floating && !t->nonfinite && t->max > 0;
}

static void count_tensor(struct tsr_granularity_figures *f, const struct tsr_granularity_tensor *t)
{
	f->ntensors += tsr_granularity_counts(t);
	f->nother += !t->floating;
	f->nnonfinite += t->floating && t->nonfinite;
	f->nempty += t->floating && !t->tensor->numel;
	f->nzero += t->floating && t->tensor->numel && !t->nonfinite && !(t->max > 0);
	if (tsr_granularity_counts(t))
		f->elements += t->tensor->numel;
}

static bool is_far(const struct tsr_granularity_tensor *t, unsigned index)
{
	const struct tsr_granularity_error *e = &t->error[index];
	const struct tsr_granularity_error *judge = &t->error[tsr_granularity_reference(index)];

	return e->nmse > TSR_GRANULARITY_FAR * judge->nmse ||
	       (double)e->zeroed > (double)judge->zeroed +
					   TSR_GRANULARITY_FAR_ZEROED * (double)t->tensor->numel;
}

/* @nmse: room for one value per tensor. */
static void fill_row(const struct tsr_granularities *g, unsigned index, double *nmse,
		     struct tsr_granularity_figures *f)
{
	struct tsr_granularity_row *row = &f->row[index];
	double quantile[TSR_AUDIT_QUANTILES];
	uint64_t nbytes = 0;
	size_t n = 0;

	row->granularity = tsr_granularity_get(index);
	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++) {
		const struct tsr_granularity_tensor *t = tsr_granularities_tensor(g, i);
		const struct tsr_granularity_error *e = &t->error[index];

		if (!tsr_granularity_counts(t))
			continue;
		nmse[n++] = e->nmse;
		if (!row->worst_tensor || e->nmse > row->worst) {
			row->worst = e->nmse;
			row->worst_tensor = t;
		}
		row->zeroed += e->zeroed;
		nbytes += e->nbytes;
		row->nfar += is_far(t, index);
	}
	tsr_audit_quantiles(nmse, n, quantile);
	row->median = quantile[TSR_AUDIT_QUANTILES / 2];
	row->bytes = f->elements ? (double)nbytes / (double)f->elements : 0;
}

/* The coarsest of a format that is far from 1x16 for no tensor. */
static unsigned enough_of(const struct tsr_granularity_figures *f, unsigned whole)
{
	unsigned i = whole;

	while (i < tsr_granularity_reference(whole) && f->row[i].nfar)
		i++;
	return i;
}

bool tsr_granularity_figures_of(const struct tsr_granularities *g,
				struct tsr_granularity_figures *ret)
{
	TSR_OWNED(free) double *nmse = calloc(tsr_granularities_ntensors(g) + 1, sizeof(*nmse));

	*ret = (struct tsr_granularity_figures){ 0 };
	if (!nmse)
		return false;
	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++)
		count_tensor(ret, tsr_granularities_tensor(g, i));
	for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++)
		fill_row(g, i, nmse, ret);
	ret->enough = enough_of(ret, 0);
	for (unsigned i = TSR_GRANULARITY_SIZES; i < TSR_GRANULARITY_COUNT;
	     i += TSR_GRANULARITY_SIZES) {
		const unsigned enough = enough_of(ret, i);

		if (ret->row[enough].worst < ret->row[ret->enough].worst)
			ret->enough = enough;
	}
	return true;
}
