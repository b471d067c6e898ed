/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of audits. */
#ifndef TSR_REPORT_AUDIT_REPORT_H
#define TSR_REPORT_AUDIT_REPORT_H

#include "audit/audit_figures.h"
#include "report/render/document.h"

#define TSR_AUDIT_SCHEMA "tersor.audit.v1"

/*
 * Text, CSV, SVG and page of @n audits: several are those of one training run, of which the last has charts.
 * @paper: the table that text has instead, or NULL.
 */
void tsr_audit_report(struct tsr_audit *const *audits, size_t n, const char *paper,
		      struct tsr_report *r);

/* Another text: the tables of the last, and by checkpoint the worst errors of codecs that are best there. */
void tsr_audit_put_last(struct tsr_audit *const *audits, size_t n, struct tsr_report *r);

/* The member "checkpoints": an object of each. */
void tsr_audit_put_json(struct tsr_audit *const *audits, size_t n, struct tsr_text *json);

/* What is wrong with a tensor, "3 values are not finite", and what to do; NULL of a sound one. */
const char *tsr_audit_fault_text(const struct tsr_audit_tensor *t, char *text, size_t room);

/* --- Tables of papers ------------------------------------------------------------------------- */

#define TSR_AUDIT_TABLES "flashoptim-4 coat-1 coat-9 gefen extra-bits"

/* The codings of one, into @ret with room for TSR_AUDIT_CODINGS_MAX; 0: there is no such table. */
unsigned tsr_audit_table_codings(const char *name, struct tsr_coding *ret);

/*
 * The table, of an audit in these codings.  FlashOptim, Figure 4; COAT, Tables 1 and 9; Gefen's blocks and
 * codebook; FP8 and extra bits.
 */
void tsr_audit_put_paper(const char *name, const struct tsr_audit *a, struct tsr_report *r);

#endif
