/* SPDX-License-Identifier: Apache-2.0 */
/* What a job found, as a line of numbers: written by the process that did it, read by the one that joins. */
#ifndef TSR_PARTS_OUTCOME_H
#define TSR_PARTS_OUTCOME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/measure.h"
#include "text/text.h"

struct tsr_encode_report;

/*
 * The numbers of one job.  The same calls in the same order write them and read them back, so that each
 * struct is listed once.  Bits are kept: what is added later has the sums of one process.
 */
struct tsr_outcome {
	struct tsr_text *into; /* written to; NULL: read */
	const char *from; /* read from; what is left of it */
	bool begun; /* a number was written */
	bool failed; /* what was read has another form */
};

/* Write *@x, or read it: 0 once it failed. */
void tsr_outcome_u64(struct tsr_outcome *o, uint64_t *x);
void tsr_outcome_u64s(struct tsr_outcome *o, uint64_t *x, size_t n);
void tsr_outcome_size(struct tsr_outcome *o, size_t *x);
void tsr_outcome_u32(struct tsr_outcome *o, uint32_t *x);
void tsr_outcome_bool(struct tsr_outcome *o, bool *x);
void tsr_outcome_float(struct tsr_outcome *o, float *x);
void tsr_outcome_double(struct tsr_outcome *o, double *x);
void tsr_outcome_doubles(struct tsr_outcome *o, double *x, size_t n);

/* Structs that several commands have. */
void tsr_outcome_measure(struct tsr_outcome *o, struct tsr_measure *m);
void tsr_outcome_update(struct tsr_outcome *o, struct tsr_update_measure *u);
void tsr_outcome_report(struct tsr_outcome *o, struct tsr_encode_report *r);

/* Whether all that there was has been read, and nothing else was expected. */
bool tsr_outcome_is_complete(const struct tsr_outcome *o);

#endif
