/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of sweeps. */
#ifndef TSR_REPORT_SWEEP_REPORT_H
#define TSR_REPORT_SWEEP_REPORT_H

#include "report/render/document.h"
#include "report/sweep_baseline.h"

/* The schema of a JSON report. */
#define TSR_SWEEP_SCHEMA "tersor.sweep.v1"

/* All forms that are asked for: the totals of each codec; text has its exponents only if it is verbose. */
void tsr_sweep_report(const struct tsr_sweep *s, struct tsr_report *r);

/*
 * What differs in @before, which has all its codecs and its range, behind the report: text has the first few
 * unless it is verbose.  Returns how many figures.
 */
size_t tsr_sweep_report_changes(const struct tsr_sweep *s, const struct tsr_sweep *before,
				struct tsr_report *r);

#endif
