/* SPDX-License-Identifier: Apache-2.0 */
/* An audit as JSON and as comma-separated values. */
#ifndef TSR_REPORT_AUDIT_REPORT_H
#define TSR_REPORT_AUDIT_REPORT_H

#include "report/audit/audit_figures.h"
#include "text/text.h"

#define TSR_AUDIT_SCHEMA "tersor.audit.v1"

/* One object, an element of the member "checkpoints".  The text has failed if memory ran out. */
void tsr_audit_put_json(const struct tsr_audit *a, struct tsr_text *json);

/* The line with the names of columns, and the rows of one checkpoint. */
void tsr_audit_put_csv_names(struct tsr_text *csv);
void tsr_audit_put_csv(const struct tsr_audit *a, struct tsr_text *csv);

/* "sound", "small", ...; "" for a reason that is none. */
const char *tsr_audit_fault_name(enum tsr_audit_fault fault);

#endif
