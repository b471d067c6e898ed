/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the papers, of one's own data. */
#ifndef TSR_REPORT_AUDIT_TABLES_H
#define TSR_REPORT_AUDIT_TABLES_H

#include "report/audit/audit_figures.h"
#include "text/text.h"

#define TSR_AUDIT_TABLES "flashoptim-4 coat-1 coat-9 gefen extra-bits"

/* The codings of a table, into @ret with room for TSR_AUDIT_CODINGS_MAX; 0: there is no such table. */
unsigned tsr_audit_table_codings(const char *name, struct tsr_coding *ret);

/*
 * One of them, of an audit in these codings, in at most 80 columns.  The text has failed if memory ran out.
 * FlashOptim, Figure 4; COAT, Tables 1 and 9; Gefen's blocks and codebook; FP8 and extra bits.
 */
void tsr_audit_put_paper_table(const char *name, const struct tsr_audit *a, struct tsr_text *out);

#endif
