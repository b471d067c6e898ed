/* SPDX-License-Identifier: Apache-2.0 */
/* Reports on 8-bit floats by granularity. */
#ifndef TSR_REPORT_GRANULARITY_REPORT_H
#define TSR_REPORT_GRANULARITY_REPORT_H

#include "audit/granularity_figures.h"
#include "report/render/document.h"

/* All forms that are asked for. */
void tsr_granularity_report(const struct tsr_granularities *g,
			    const struct tsr_granularity_figures *f,
			    enum tsr_granularity_scale scale, struct tsr_report *r);

#endif
