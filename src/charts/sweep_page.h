/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a sweep: the chart, its values, the table and how to read it, in one file. */
#ifndef TSR_REPORT_SWEEP_PAGE_H
#define TSR_REPORT_SWEEP_PAGE_H

#include "tersor/sweep.h"
#include "text/text.h"

void tsr_sweep_put_html(const struct tsr_sweep *s, struct tsr_text *html);

#endif
