/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the figures of an audit. */
#include <stdlib.h>

#include "tersor/audit.h"

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

/* --- Quantiles ---------------------------------------------------------------------------------- */

unsigned tsr_audit_percent(unsigned i)
{
	static const unsigned percents[TSR_AUDIT_QUANTILES] = { 0, 5, 25, 50, 75, 95, 100 };

	return percents[i];
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void tsr_audit_quantiles(double *values, size_t n, double ret[TSR_AUDIT_QUANTILES])
{
	qsort(values, n, sizeof(*values), compare);
	for (unsigned i = 0; i < TSR_AUDIT_QUANTILES; i++) {
		/* ceil(p * n / 100), of which the 0th is the 1st. */
		const uint64_t rank = ((uint64_t)tsr_audit_percent(i) * n + 99) / 100;

		ret[i] = n ? values[rank ? rank - 1 : 0] : 0;
	}
}
