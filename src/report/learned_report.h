/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of what was learned: blocks and a codebook. */
#ifndef TSR_REPORT_LEARNED_REPORT_H
#define TSR_REPORT_LEARNED_REPORT_H

#include "report/render/document.h"
#include "tersor/learn.h"

/* All forms that are asked for; text has the entries only if it is verbose. */
void tsr_learned_report(const struct tsr_learned *l, struct tsr_report *r);

#endif
