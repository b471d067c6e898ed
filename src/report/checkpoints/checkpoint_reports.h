/* SPDX-License-Identifier: Apache-2.0 */
/* The reports of commands on checkpoints: their text, and the members of their JSON. */
#ifndef TSR_REPORT_CHECKPOINTS_CHECKPOINT_REPORTS_H
#define TSR_REPORT_CHECKPOINTS_CHECKPOINT_REPORTS_H

#include "compare/comparison.h"
#include "pack/packing.h"
#include "recording/recording_summary.h"
#include "report/checkpoints/remarks.h"

/* The kinds of tensors have been found (tsr_names_assign()). */
void tsr_checkpoint_report(const struct tsr_checkpoint *c, struct tsr_report *r);

void tsr_recording_report(const struct tsr_recording_summary *s, struct tsr_report *r);

/* @o: of the packing; @model: it was one of weights alone; @written: the output is in place. */
void tsr_packing_report(const struct tsr_packing *p, const struct tsr_pack_options *o, bool model,
			bool written, struct tsr_report *r);

/* Before the member "tensors", which is the caller's: of unpack, convert, apply, and files coded anew. */
void tsr_unpacking_report(struct tsr_report *r, const struct tsr_unpacking *u);
void tsr_conversion_report(struct tsr_report *r, const struct tsr_unpacking *u);
void tsr_apply_report(struct tsr_report *r, const struct tsr_unpacking *u);
void tsr_recoding_report(struct tsr_report *r, const struct tsr_unpacking *u);

/* One of the files of a report, of which the object has been opened. */
void tsr_verification_report(const struct tsr_verification *v, const struct tsr_lost *lost,
			     struct tsr_report *r);

void tsr_comparison_report(const struct tsr_comparison *c, const struct tsr_diff_options *o,
			   struct tsr_report *r);

/* The codecs of these names and of their families; none: all. */
void tsr_codecs_report(const char *const *asked, unsigned n, struct tsr_report *r);

#endif
