/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a sweep. */
#ifndef TSR_REPORT_SWEEP_TABLE_H
#define TSR_REPORT_SWEEP_TABLE_H

#include "report/sweep_baseline.h"
#include "text/text.h"

/* The totals of each codec; with @verbose also its exponents.  At most 80 columns. */
void tsr_sweep_put_table(const struct tsr_sweep *s, bool verbose, struct tsr_text *out);

/* What differs from the baseline; without @verbose the first few. */
void tsr_sweep_put_changes(const struct tsr_sweep_change *changes, size_t n, bool verbose,
			   struct tsr_text *out);

#endif
