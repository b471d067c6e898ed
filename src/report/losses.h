/* SPDX-License-Identifier: Apache-2.0 */
/* What decoded tensors lost, as text and as JSON. */
#ifndef TSR_REPORT_LOSSES_H
#define TSR_REPORT_LOSSES_H

#include "compare/lost.h"
#include "report/render/table.h"

/* Lines of at most 80 columns on what was lost and what was measured; none if there is nothing. */
void tsr_losses_put_text(const struct tsr_losses *l, struct tsr_text *out);

/* The member "losses". */
void tsr_losses_put_json(const struct tsr_losses *l, struct tsr_text *json);

/* The member "update" of a variance that was measured with its momentum; else nothing. */
void tsr_update_put(struct tsr_table *t, const struct tsr_update_measured *u);

#endif
