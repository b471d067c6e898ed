/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of audits. */
#ifndef TSR_REPORT_AUDIT_REPORT_H
#define TSR_REPORT_AUDIT_REPORT_H

#include "audit/audit_figures.h"
#include "report/render/document.h"

/*
 * Text, CSV, SVG and page of @n audits: several are those of one training run, of which the last has charts.
 * @paper: text has the figures of papers, of all pairs of codecs.
 */
void tsr_audit_report(struct tsr_audit *const *audits, size_t n, bool paper, struct tsr_report *r);

/* Another text: the tables of the last, and by checkpoint the worst errors of codecs that are best there. */
void tsr_audit_put_last(struct tsr_audit *const *audits, size_t n, struct tsr_report *r);

/* The member "checkpoints": an object of each. */
void tsr_audit_put_json(struct tsr_audit *const *audits, size_t n, struct tsr_text *json);

/* What is wrong with a tensor, "3 values are not finite", and what to do; NULL of a sound one. */
const char *tsr_audit_fault_text(const struct tsr_audit_tensor *t, char *text, size_t room);

#endif
