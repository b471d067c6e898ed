/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of contexts: which contexts in a row have one table. */
#ifndef TSR_ENTROPY_CONTEXT_TABLES_H
#define TSR_ENTROPY_CONTEXT_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"
#include "entropy/rans_math.h"

struct tsr_context_tables {
	unsigned n;
	uint32_t begin; /* a bit for each context that has another table than the one below it */
	uint8_t of[TSR_RANS_CONTEXT_COUNT]; /* the number of each context's table */
};

/*
 * Choose tables for codes of which each of 256 occurs @count times in each context, at least one of them
 * somewhere.  @count has afterwards, in front, how often they occur with each table.
 */
void tsr_context_tables_choose(uint32_t *count, struct tsr_context_tables *t);

/* Tables as stored in @begin, which must be possible. */
bool tsr_context_tables_are_possible(uint32_t begin);
void tsr_context_tables_read(uint32_t begin, struct tsr_context_tables *t);

/* Replace contexts by the numbers of their tables. */
void tsr_context_tables_of_contexts(const struct tsr_context_tables *t, size_t n,
				    uint8_t *contexts);

/* The loops: these, and the sum of tsr_rans_information() of the sums of two contexts' counts. */
typedef void tsr_context_tables_bytes_fn(const uint8_t *tables, size_t n, uint8_t *contexts);
typedef uint32_t tsr_context_tables_informations_fn(const uint32_t *a, const uint32_t *b);
TSR_ISA_DECLARE(tsr_context_tables_bytes_fn, context_tables_bytes)
TSR_ISA_DECLARE(tsr_context_tables_informations_fn, context_tables_informations)

#endif
