/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the figures of an audit. */
#include <stdlib.h>

#include "audit/audit_figures.h"
#include "base/order.h"

const struct tsr_audit_list *tsr_audit_list(const struct tsr_audit *a, enum tsr_kind kind)
{
	switch (kind) {
	case TSR_KIND_WEIGHT:
		return &a->weights;
	case TSR_KIND_MOMENTUM:
		return &a->momenta;
	case TSR_KIND_VARIANCE:
		return &a->variances;
	case TSR_KIND_OTHER:
		break;
	}
	return NULL;
}

const struct tsr_audit_update *tsr_audit_update(const struct tsr_audit *a, size_t pair, unsigned m,
						unsigned v)
{
	return &a->pairs[pair].updates[(size_t)m * (a->variances.n + 1) + v];
}

struct tsr_moments_found tsr_audit_moments(const struct tsr_audit *a)
{
	const double betas[2] = { a->beta1, a->beta2 };
	struct tsr_moments_found f = tsr_moments_with(a->betas_known, betas);

	for (size_t i = 0; i < a->npairs; i++) {
		const struct tsr_tensor *m = a->tensors[a->pairs[i].momentum].tensor,
					*v = a->tensors[a->pairs[i].variance].tensor;

		if (tsr_moments_checked(a->source, m, v))
			tsr_moments_add(&f, v, &a->pairs[i].breach);
	}
	return f;
}

/* --- Quantiles ---------------------------------------------------------------------------------- */

unsigned tsr_audit_percent(unsigned i)
{
	static const unsigned percents[TSR_AUDIT_QUANTILES] = { 0, 5, 25, 50, 75, 95, 100 };

	return percents[i];
}

TSR_COMPARE(compare, double, TSR_ORDER(*a, *b))

void tsr_audit_quantiles(double *values, size_t n, double ret[TSR_AUDIT_QUANTILES])
{
	qsort(values, n, sizeof(*values), compare);
	for (unsigned i = 0; i < TSR_AUDIT_QUANTILES; i++) {
		/* ceil(p * n / 100), of which the 0th is the 1st. */
		const uint64_t rank = ((uint64_t)tsr_audit_percent(i) * n + 99) / 100;

		ret[i] = n ? values[rank ? rank - 1 : 0] : 0;
	}
}
