/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of an audit, and the same for programs. */
#ifndef TSR_REPORT_AUDIT_TABLES_H
#define TSR_REPORT_AUDIT_TABLES_H

#include "audit/audit_figures.h"
#include "report/render/table.h"

/* A row: one codec over all tensors of a kind. */
void tsr_audit_add_codec(struct tsr_table *t, const struct tsr_audit *a, enum tsr_kind kind,
			 unsigned i);

/* All pairs of codecs, the best first. */
struct tsr_table tsr_audit_pairs(const struct tsr_audit *a, const struct tsr_audit_cell *c,
				 size_t n);

/* One tensor in every codec; those that cannot be tried are put aside, or with @measured left out. */
struct tsr_table tsr_audit_trials(const struct tsr_audit *a, const struct tsr_audit_tensor *tensor,
				  bool measured);

/* The codecs of a pair, and the variance of the pair of tensors with its largest error. */
const char *tsr_audit_momentum(const struct tsr_audit *a, const struct tsr_audit_cell *c);
const char *tsr_audit_variance(const struct tsr_audit *a, const struct tsr_audit_cell *c);
const char *tsr_audit_worst_name(const struct tsr_audit *a, const struct tsr_audit_cell *c);

/* The forms of a verdict, a row each, and the command that packs in one of them. */
struct tsr_table tsr_audit_forms(const struct tsr_audit_verdict *v);
void tsr_audit_put_command(const struct tsr_audit *a, const struct tsr_audit_form *f,
			   struct tsr_text *out);

void tsr_audit_put_csv(struct tsr_audit *const *audits, size_t n, struct tsr_text *csv);

#endif
