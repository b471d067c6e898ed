/* SPDX-License-Identifier: Apache-2.0 */
/* Values besides the tensors that differ, in a report. */
#ifndef TSR_REPORT_VALUE_DIFFERENCES_H
#define TSR_REPORT_VALUE_DIFFERENCES_H

#include "compare/besides.h"
#include "text/text.h"

/* One line with the first few, or with @all a line for each that is listed; nothing if none differs. */
void tsr_besides_put_text(const struct tsr_besides *b, bool all, struct tsr_text *out);

/* The member "besides". */
void tsr_besides_put_json(const struct tsr_besides *b, struct tsr_text *json);

#endif
