/* SPDX-License-Identifier: Apache-2.0 */
/* What the reports of several commands say in the same words. */
#ifndef TSR_REPORT_CHECKPOINTS_REMARKS_H
#define TSR_REPORT_CHECKPOINTS_REMARKS_H

#include "compare/besides.h"
#include "compare/totals.h"
#include "pack/outcome/moments.h"
#include "pack/outcome/kept_tensors.h"
#include "render/document.h"

/* --- Tensors --------------------------------------------------------------------------------- */

/*
 * A row for a tensor: what describes it, to which a report adds what it found.  Text has name, kind,
 * dtype, shape, -coding, and the lines -weight, -quantized and -narrow.
 */
void tsr_tensor_put(struct tsr_table *t, const struct tsr_tensor *x);

/* Members of an object "error": each metric from its tsr_measure_error(); and with all counts measured. */
void tsr_errors_put(struct tsr_table *t, const double error[TSR_METRIC_COUNT]);
void tsr_measured_put(struct tsr_table *t, const struct tsr_measured *m);

/* --- What decoded tensors lost, as text and as JSON ------------------------------------------ */

/* Lines of at most 80 columns on what was lost and what was measured; none if there is nothing. */
void tsr_lost_put_text(const struct tsr_lost *l, struct tsr_text *out);

/* The member "losses". */
void tsr_lost_put_json(const struct tsr_lost *l, struct tsr_text *json);

/* The member "update" of a variance that was measured with its momentum; else nothing. */
void tsr_update_put(struct tsr_table *t, const struct tsr_update_measured *u);

/* The member "moments": whether they can be Adam's, and what cannot. */
void tsr_moments_put_json(const struct tsr_moments_found *f, struct tsr_text *json);

/* --- Values besides the tensors that differ, in a report ------------------------------------- */

/* One line with the first few, or with @all a line for each that is listed; nothing if none differs. */
void tsr_besides_put_text(const struct tsr_besides *b, bool all, struct tsr_text *out);

/* The member "besides". */
void tsr_besides_put_json(const struct tsr_besides *b, struct tsr_text *json);

/* --- Which codecs a packing chose by their errors, as text and as JSON ----------------------- */

/* Lines that say what was chosen; none if there was no choice. */
void tsr_choices_put_text(const struct tsr_choices *s, struct tsr_text *out);

/* The member "choice" of a report with a choice. */
void tsr_choices_put_json(const struct tsr_choices *s, struct tsr_text *json);

/* The member "choice" of a tensor that had one, and a line -choice; else nothing. */
void tsr_choice_put(struct tsr_table *t, const struct tsr_choice *choice,
		    const struct tsr_coding *coding);

/* --- What a packing left as it was, and why: lines of a report and members of its JSON ------- */

/* Why nothing, or almost nothing, was packed: what most of the rest is, and which option packs it. */
void tsr_kept_raw_put_why(const struct tsr_kept_raw *k, struct tsr_text *out);

/* Lines about state, small tensors and integers, and one if almost nothing was packed. */
void tsr_kept_raw_put_text(const struct tsr_kept_raw *k, struct tsr_text *out);

/* The members "packed_nbytes" and "kept_raw". */
void tsr_kept_raw_put_json(const struct tsr_kept_raw *k, struct tsr_text *json);

/* --- Totals of a checkpoint by kind and codec, as a table and as JSON ------------------------ */

/* tsr_summary_bytes_per_parameter() between two texts; nothing if there are no parameters. */
void tsr_summary_put_per_parameter(const struct tsr_summary *s, const char *before,
				   const char *after, struct tsr_text *out);

/* Lines about copies and about what belongs to quantized weights, if there are any. */
void tsr_summary_put_remarks(const struct tsr_summary *s, struct tsr_text *out);

/* The table, at most 80 columns. */
void tsr_summary_put_table(const struct tsr_summary *s, struct tsr_report *r);

/* The members "totals", "quantized" and "by_kind". */
void tsr_summary_put_json(const struct tsr_summary *s, struct tsr_text *json);

/* "LEAD: NMSE 1.00e-06 in TENSOR", and which file it is in; nothing if nothing was lost. */
void tsr_summary_put_worst(const struct tsr_summary *s, const char *lead, struct tsr_text *out);

#endif
