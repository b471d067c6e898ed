/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of sweeps. */
#ifndef TSR_REPORT_SWEEP_REPORT_H
#define TSR_REPORT_SWEEP_REPORT_H

#include "report/render/document.h"
#include "tersor/sweep.h"

/* All forms that are asked for: the totals of each codec; text has its exponents only if it is verbose. */
void tsr_sweep_report(const struct tsr_sweep *s, struct tsr_report *r);

/* The members of a JSON report. */
void tsr_sweep_put_json(const struct tsr_sweep *s, struct tsr_text *json);

#endif
