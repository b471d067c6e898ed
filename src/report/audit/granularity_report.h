/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit floats by granularity as a table, as JSON and as comma-separated values. */
#ifndef TSR_REPORT_GRANULARITY_REPORT_H
#define TSR_REPORT_GRANULARITY_REPORT_H

#include "report/audit/granularity_figures.h"

/* At most 80 columns; without @verbose of the tensors only those that lose the most. */
void tsr_granularity_put_table(const struct tsr_granularities *g,
			       const struct tsr_granularity_figures *f,
			       enum tsr_granularity_scale scale, bool verbose,
			       struct tsr_text *out);

/* The members "scale", "verdict", "granularities", "over_tensors" and "tensors". */
void tsr_granularity_put_json(const struct tsr_granularities *g,
			      const struct tsr_granularity_figures *f,
			      enum tsr_granularity_scale scale, struct tsr_text *json);

/* A line per tensor, format and granularity. */
void tsr_granularity_put_csv(const struct tsr_granularities *g, struct tsr_text *csv);

#endif
