/* SPDX-License-Identifier: Apache-2.0 */
/* Which codecs a packing chose by their errors, as text and as JSON. */
#ifndef TSR_REPORT_CHOICES_H
#define TSR_REPORT_CHOICES_H

#include "pack/outcome/chosen.h"
#include "report/render/format.h"
#include "text/text.h"

/* Lines that say what was chosen; none if there was no choice. */
void tsr_choices_put_text(const struct tsr_choices *s, struct tsr_text *out);

/* The member "choice" of a report with a choice. */
void tsr_choices_put_json(const struct tsr_choices *s, struct tsr_text *json);

/* Why a tensor has its coding: "tried 3: update NMSE 2.8e-05; the smaller e4m3x 2.2e-04". */
struct tsr_cell tsr_format_choice(const struct tsr_choice *choice, const struct tsr_coding *coding);

/* The member "choice" of a tensor that had one; else nothing. */
void tsr_choice_put_json(const struct tsr_choice *choice, struct tsr_text *json);

#endif
