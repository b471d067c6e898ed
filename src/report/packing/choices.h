/* SPDX-License-Identifier: Apache-2.0 */
/* Which codecs a packing chose by their errors, as text and as JSON. */
#ifndef TSR_REPORT_CHOICES_H
#define TSR_REPORT_CHOICES_H

#include "pack/outcome/chosen.h"
#include "report/render/table.h"
#include "text/text.h"

/* Lines that say what was chosen; none if there was no choice. */
void tsr_choices_put_text(const struct tsr_choices *s, struct tsr_text *out);

/* The member "choice" of a report with a choice. */
void tsr_choices_put_json(const struct tsr_choices *s, struct tsr_text *json);

/* The member "choice" of a tensor that had one, and a line -choice; else nothing. */
void tsr_choice_put(struct tsr_table *t, const struct tsr_choice *choice,
		    const struct tsr_coding *coding);

#endif
