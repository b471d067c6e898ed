/* SPDX-License-Identifier: Apache-2.0 */
/* Audits of several checkpoints, such as those of one training run: figures by step. */
#ifndef TSR_REPORT_AUDIT_SERIES_H
#define TSR_REPORT_AUDIT_SERIES_H

#include "report/audit/audit_figures.h"
#include "text/text.h"

/*
 * A line for each checkpoint with the worst update NMSE of the pair of codecs that is best for the
 * last, of the pair that pack uses, and of others; and with its best codec for weights.  The text
 * has failed if memory ran out.
 */
void tsr_audit_put_series(struct tsr_audit *const *audits, size_t n, struct tsr_text *out);

#endif
