/* SPDX-License-Identifier: Apache-2.0 */
/* What a packing left as it was, and why: lines of a report and members of its JSON. */
#ifndef TSR_REPORT_KEPT_RAW_H
#define TSR_REPORT_KEPT_RAW_H

#include "pack/outcome/kept_tensors.h"
#include "text/text.h"

/* Why nothing, or almost nothing, was packed: what most of the rest is, and which option packs it. */
void tsr_kept_raw_put_why(const struct tsr_kept_raw *k, struct tsr_text *out);

/* Lines about state, small tensors and integers, and one if almost nothing was packed. */
void tsr_kept_raw_put_text(const struct tsr_kept_raw *k, struct tsr_text *out);

/* The members "packed_nbytes" and "kept_raw". */
void tsr_kept_raw_put_json(const struct tsr_kept_raw *k, struct tsr_text *json);

#endif
