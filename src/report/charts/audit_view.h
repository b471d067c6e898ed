/* SPDX-License-Identifier: Apache-2.0 */
/* What the charts and the page of an audit show: figures of its codecs, computed once. */
#ifndef TSR_CHARTS_AUDIT_VIEW_H
#define TSR_CHARTS_AUDIT_VIEW_H

#include "audit/audit_figures.h"
#include "audit/audit_series.h"
#include "text/text.h"

#define TSR_AUDIT_PANELS 3

/* Codecs of one kind that hold at least one tensor, in the order in which they were tried. */
struct tsr_audit_panel {
	enum tsr_kind kind;
	const char *title;
	unsigned n;
	struct tsr_audit_column *columns;
	size_t *worst; /* of each: the index of the tensor with the largest NMSE */
};

struct tsr_audit_view {
	const struct tsr_audit *audit; /* the last one, of which the other members are */
	struct tsr_audit *const
		*audits; /* @naudits checkpoints, such as those of one training run */
	size_t naudits;
	struct tsr_audit_series series; /* pairs of codecs; of several checkpoints */
	double *nmse; /* by checkpoint and pair of the series */
	struct tsr_audit_panel panel[TSR_AUDIT_PANELS]; /* momenta, variances, weights */
	struct tsr_audit_cell *cells; /* all pairs of codecs, the best first */
	size_t ncells;
	const struct tsr_audit_cell *best; /* the verdict; NULL: none */
};

/* @n is at least 1.  False if out of memory.  To be freed in both cases. */
bool tsr_audit_view_of(struct tsr_audit *const *audits, size_t n, struct tsr_audit_view *ret);
void tsr_audit_view_free(struct tsr_audit_view *v);

/* A figure as it stands in charts and tables: "2.9e-5", "0", an infinity sign. */
void tsr_audit_put_error(double value, int digits, struct tsr_text *out);

#endif
