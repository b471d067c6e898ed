/* SPDX-License-Identifier: Apache-2.0 */
/* An audit for people to read. */
#ifndef TSR_REPORT_AUDIT_TABLE_H
#define TSR_REPORT_AUDIT_TABLE_H

#include "report/audit/audit_figures.h"
#include "text/text.h"

/*
 * The verdict, pairs and codecs, in at most 80 columns.  @verbose: all pairs, and every tensor.  The text has
 * failed if memory ran out.
 */
void tsr_audit_put_table(const struct tsr_audit *a, unsigned verbose, struct tsr_text *out);

/* The verdict alone: a sentence or two. */
void tsr_audit_put_verdict(const struct tsr_audit *a, const struct tsr_audit_cell *cells, size_t n,
			   struct tsr_text *out);

/* The same as lines of at most 80 columns. */
void tsr_audit_put_verdict_lines(const struct tsr_audit *a, struct tsr_text *out);

/*
 * What is wrong with a tensor, "3 values are not finite", and what to do, or NULL for a sound one; into
 * @text of @room bytes.
 */
const char *tsr_audit_fault_text(const struct tsr_audit_tensor *t, char *text, size_t room);

#endif
