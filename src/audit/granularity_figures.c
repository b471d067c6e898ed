/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit floats by granularity over all tensors, and what follows from it. */
#include "audit/granularity_figures.h"

#include <stdlib.h>
#include <string.h>

unsigned tsr_granularity_reference(void)
{
	unsigned i = 0;

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

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static bool is_far(const struct tsr_granularity_tensor *t, enum tsr_fp8 format, unsigned index)
{
	const struct tsr_granularity_error *e = &t->error[format][index];
	const struct tsr_granularity_error *judge = &t->error[format][tsr_granularity_reference()];

	return e->nmse > TSR_GRANULARITY_FAR * judge->nmse ||
	       (double)e->zeroed > (double)judge->zeroed +
					   TSR_GRANULARITY_FAR_ZEROED * (double)t->tensor->numel;
}

/* @nmse: room for one value per tensor. */
static void fill_row(const struct tsr_granularities *g, enum tsr_fp8 format, unsigned granularity,
		     double *nmse, struct tsr_granularity_row *row)
{
	size_t n = 0;

	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++) {
		const struct tsr_granularity_tensor *t = tsr_granularities_tensor(g, i);
		const struct tsr_granularity_error *e = &t->error[format][granularity];

		if (!tsr_granularity_counts(t))
			continue;
		nmse[n++] = e->nmse;
		if (!row->worst_tensor || e->nmse > row->worst) {
			row->worst = e->nmse;
			row->worst_tensor = t;
		}
		row->zeroed += e->zeroed;
		row->nbytes += e->nbytes;
		row->nfar += is_far(t, format, granularity);
	}
	qsort(nmse, n, sizeof(*nmse), compare);
	row->median = n ? nmse[(n - 1) / 2] : 0;
}

/* The coarsest that is far from 1x16 for no tensor. */
static unsigned enough_of(const struct tsr_granularity_figures *f, enum tsr_fp8 format)
{
	unsigned i = 0;

	while (i < tsr_granularity_reference() && f->row[format][i].nfar)
		i++;
	return i;
}

bool tsr_granularity_figures_of(const struct tsr_granularities *g,
				struct tsr_granularity_figures *ret)
{
	double *nmse = calloc(tsr_granularities_ntensors(g) + 1, sizeof(*nmse));

	*ret = (struct tsr_granularity_figures){ 0 };
	if (!nmse)
		return false;
	for (size_t i = 0; i < tsr_granularities_ntensors(g); i++)
		count_tensor(ret, tsr_granularities_tensor(g, i));
	for (int format = 0; format < TSR_FP8_COUNT; format++) {
		const enum tsr_fp8 f = (enum tsr_fp8)format;
		unsigned enough;

		for (unsigned i = 0; i < TSR_GRANULARITY_COUNT; i++)
			fill_row(g, f, i, nmse, &ret->row[f][i]);
		enough = enough_of(ret, f);
		if (!format ||
		    ret->row[f][enough].worst < ret->row[ret->format][ret->enough].worst) {
			ret->format = f;
			ret->enough = enough;
		}
	}
	free(nmse);
	return true;
}

double tsr_granularity_cost(const struct tsr_granularity_figures *f, enum tsr_fp8 format,
			    unsigned granularity)
{
	return f->elements ? (double)f->row[format][granularity].nbytes / (double)f->elements : 0;
}
