/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of a checkpoint, or of all files of a directory, by kind and codec. */
#ifndef TSR_COMPARE_TOTALS_H
#define TSR_COMPARE_TOTALS_H

#include "compare/lost.h"
#include "names/copies/copies.h"
#include "pack/outcome/chosen.h"

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
	uint64_t files_nbytes; /* of the files, with what they have besides tensors */
	const char *file; /* of a directory: the one whose tensors are added; or NULL */
	char worst[200], worst_file[200]; /* the tensor with the largest error, and its file */
	struct tsr_copies copies; /* which are no parameters */
	struct tsr_summary_row quantized; /* of what belongs to quantized weights */
	struct tsr_lost lost;
	struct tsr_choices choices; /* of a packing */
};

/* Add all tensors of a checkpoint, with the errors that a packed one records. */
void tsr_summary_add_all(struct tsr_summary *s, const struct tsr_checkpoint *c);

/* Add all tensors that were packed, with their errors, what they lost and which codecs were chosen. */
void tsr_summary_add_packing(struct tsr_summary *s, const struct tsr_packing *p);

/* Elements of weights that are no copies, or of momenta where there are no weights. */
uint64_t tsr_summary_parameters(const struct tsr_summary *s);

/* Bytes of the files per parameter.  docs/reading.md */
double tsr_summary_bytes_per_parameter(const struct tsr_summary *s);

#endif
