/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of a checkpoint by kind and codec, as a table and as JSON. */
#ifndef TSR_REPORT_SUMMARY_H
#define TSR_REPORT_SUMMARY_H

#include "names/copies/copies.h"
#include "report/packing/choices.h"
#include "report/losses.h"
#include "report/render/document.h"
#include "text/text.h"
#include "tersor/checkpoint.h"

/* Totals of the tensors of one kind that share a coding; one line of a summary. */
struct tsr_summary_row {
	enum tsr_kind kind;
	struct tsr_coding coding;
	uint64_t ntensors, nelements;
	uint64_t nbytes; /* in the tensors' own dtypes */
	uint64_t stored_nbytes;
	bool measured; /* an error is known */
	double worst_nmse; /* the largest */
};

#define TSR_SUMMARY_ROWS_MAX 64

struct tsr_summary {
	struct tsr_summary_row rows[TSR_SUMMARY_ROWS_MAX];
	unsigned nrows;
	struct tsr_summary_row total;
	const char *file; /* of a directory: the one whose tensors are added; or NULL */
	char worst[200], worst_file[200]; /* the tensor with the largest error, and its file */
	struct tsr_copies copies; /* which are no parameters */
	struct tsr_summary_row quantized; /* of what belongs to quantized weights */
	struct tsr_losses losses;
	struct tsr_choices choices; /* of a packing */
};

/* Add a tensor that takes @stored_nbytes; @nmse is negative if unknown. */
void tsr_summary_add(struct tsr_summary *s, const struct tsr_tensor *t, uint64_t stored_nbytes,
		     double nmse);

/* Add all tensors of a checkpoint, with the errors that a packed one records. */
void tsr_summary_add_all(struct tsr_summary *s, const struct tsr_checkpoint *c);

/*
 * Bytes stored per parameter: those of all tensors, in the form that they are stored in, over the elements of
 * weights that are no copies.  docs/reading.md
 */
double tsr_summary_bytes_per_parameter(const struct tsr_summary *s);

/* The same as text between two others; nothing if there are no parameters. */
void tsr_summary_put_per_parameter(const struct tsr_summary *s, const char *before,
				   const char *after, struct tsr_text *out);

/* Lines about copies and about what belongs to quantized weights, if there are any. */
void tsr_summary_put_remarks(const struct tsr_summary *s, struct tsr_text *out);

/* The table, at most 80 columns. */
void tsr_summary_put_table(struct tsr_summary *s, struct tsr_report *r);

/* The members "totals", "quantized" and "by_kind". */
void tsr_summary_put_json(struct tsr_summary *s, struct tsr_text *json);

/* "LEAD: NMSE 1.00e-06 in TENSOR", and which file it is in; nothing if nothing was lost. */
void tsr_summary_put_worst(const struct tsr_summary *s, const char *lead, struct tsr_text *out);

#endif
