/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep as JSON and as comma-separated values. */
#ifndef TSR_REPORT_SWEEP_REPORT_H
#define TSR_REPORT_SWEEP_REPORT_H

#include "tersor/sweep.h"
#include "text/text.h"

/* The schema of a JSON report. */
#define TSR_SWEEP_SCHEMA "tersor.sweep.v1"

/* The members "first", "last" and "codecs" of a JSON report. */
void tsr_sweep_put_json(const struct tsr_sweep *s, struct tsr_text *json);

/* A line per codec and exponent field that has patterns. */
void tsr_sweep_put_csv(const struct tsr_sweep *s, struct tsr_text *csv);

#endif
