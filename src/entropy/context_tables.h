/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of contexts: which contexts in a row have one table, and how they are stored. */
#ifndef TSR_ENTROPY_CONTEXT_TABLES_H
#define TSR_ENTROPY_CONTEXT_TABLES_H

#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"
#include "entropy/segments.h"

struct tsr_context_tables {
	unsigned n;
	uint16_t begin; /* a bit for each context that has another table than the one below it */
	uint16_t lowest; /* stored beside that: of floats that differ the lowest exponent, or 0 */
	uint8_t of[TSR_RANS_CONTEXT_COUNT]; /* the number of each context's table */
};

/* Most bytes that are stored. */
#define TSR_CONTEXT_TABLES_NBYTES (4 + TSR_RANS_TABLE_COUNT * TSR_RANS_TABLE_NBYTES)

/*
 * Choose tables for symbols of which each of 256 occurs @count times in each context, at least one of them
 * somewhere, if a table costs @table_cost; put them to @bytes, whose number is returned, and to the encoder.
 * @count has afterwards, in front, how often they occur with each table; *@cost is what they cost by these.
 * Costs are in 1/256 of a bit.
 */
size_t tsr_context_tables_put(struct tsr_entropy *e, uint32_t *count, int32_t table_cost,
			      struct tsr_context_tables *t, uint8_t *bytes, uint64_t *cost);

/* Read them to the decoder.  NULL, or what is wrong with them. */
const char *tsr_context_tables_get(struct tsr_entropy *e, const uint8_t *bytes, size_t nbytes,
				   struct tsr_context_tables *t, size_t *used);

/* Replace contexts by the numbers of their tables. */
void tsr_context_tables_of_contexts(const struct tsr_context_tables *t, size_t n,
				    uint8_t *contexts);

/* The loops: these, and the sum of tsr_rans_information() of the sums of two contexts' counts. */
typedef void tsr_context_tables_bytes_fn(const uint8_t *tables, size_t n, uint8_t *contexts);
typedef uint32_t tsr_context_tables_informations_fn(const uint32_t *a, const uint32_t *b);
TSR_ISA_DECLARE(tsr_context_tables_bytes_fn, context_tables_bytes)
TSR_ISA_DECLARE(tsr_context_tables_informations_fn, context_tables_informations)

#endif
