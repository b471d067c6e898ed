/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CLI_SUMMARY_H
#define TSR_CLI_SUMMARY_H

#include "text/text.h"
#include "tersor/checkpoint.h"

/* Totals of the tensors of one kind that share a coding; one line of a summary. */
struct cli_summary_row {
	enum tsr_kind kind;
	struct tsr_coding coding;
	uint64_t ntensors, nelements;
	uint64_t nbytes; /* in the tensors' own dtypes */
	uint64_t stored_nbytes;
	const struct tsr_tensor *worst; /* the largest NMSE; NULL if none is known */
	double worst_nmse;
};

#define CLI_SUMMARY_ROWS_MAX 64

struct cli_summary {
	struct cli_summary_row rows[CLI_SUMMARY_ROWS_MAX];
	unsigned nrows;
	struct cli_summary_row total;
	uint64_t nparameters; /* elements of weights, or of momenta where there are no weights */
};

/* Add a tensor that takes `stored_nbytes`; nmse < 0: not known. */
void cli_summary_add(struct cli_summary *s, const struct tsr_tensor *t, uint64_t stored_nbytes,
		     double nmse);

/* Bytes stored per parameter: all bytes over the number of weights. */
double cli_summary_bytes_per_parameter(const struct cli_summary *s);

/* The table, on stdout, at most 80 columns. */
void cli_summary_print(struct cli_summary *s);

/* The members "totals" and "by_kind". */
void cli_summary_json(struct cli_summary *s, struct tsr_text *json);

#endif
