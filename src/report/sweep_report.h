/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep as tables, as JSON and as comma-separated values. */
#ifndef TSR_REPORT_SWEEP_REPORT_H
#define TSR_REPORT_SWEEP_REPORT_H

#include "report/sweep_baseline.h"
#include "text/text.h"

/* The schema of a JSON report. */
#define TSR_SWEEP_SCHEMA "tersor.sweep.v1"

/* The members "first", "last" and "codecs" of a JSON report. */
void tsr_sweep_put_json(const struct tsr_sweep *s, struct tsr_text *json);

/* A line per codec and exponent field that has patterns. */
void tsr_sweep_put_csv(const struct tsr_sweep *s, struct tsr_text *csv);

/* The totals of each codec; with @verbose also its exponents.  At most 80 columns. */
void tsr_sweep_put_table(const struct tsr_sweep *s, bool verbose, struct tsr_text *out);

/* What differs from the baseline; without @verbose the first few. */
void tsr_sweep_put_changes(const struct tsr_sweep_change *changes, size_t n, bool verbose,
			   struct tsr_text *out);

#endif
