/* SPDX-License-Identifier: Apache-2.0 */
/* Audits of several checkpoints, such as those of one training run: figures by step. */
#ifndef TSR_AUDIT_SERIES_H
#define TSR_AUDIT_SERIES_H

#include "audit/audit_figures.h"

#define TSR_AUDIT_SERIES_MAX 4

/* Pairs of codecs that a series shows, as they are in its last checkpoint. */
struct tsr_audit_series {
	const struct tsr_audit_cell *cell[TSR_AUDIT_SERIES_MAX];
	unsigned n;
};

/* The verdict, the pair that pack uses, and then the best. */
struct tsr_audit_series tsr_audit_series_of(const struct tsr_audit *last);

/*
 * The worst update NMSE in a checkpoint of a pair of codecs of the last one; NaN if it was not tried there or
 * holds nothing.
 */
double tsr_audit_series_nmse(const struct tsr_audit *a, const struct tsr_audit *last,
			     const struct tsr_audit_cell *cell);

#endif
