/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of coded streams: frequencies from counts, their bytes, and what the loops look symbols up in. */
#ifndef TSR_ENTROPY_FREQUENCIES_H
#define TSR_ENTROPY_FREQUENCIES_H

#include <stddef.h>
#include <stdint.h>

#include "entropy/rans_loops.h"

/* Most bytes of a stored table: its head, and 256 numbers of 12 bits. */
#define TSR_RANS_TABLE_NBYTES 388u

/*
 * Frequencies that sum to 2^@bits, as near to the counts as they get: by Webster's method of
 * apportionment, but at least 1 for what occurs.  At least two counts are not 0; their sum is below 2^32.
 */
void tsr_rans_frequencies(const uint32_t *count, unsigned bits, uint16_t *freq);

/* The same, with TSR_RANS_BITS, of one symbol or more: one that is alone has its neighbour beside it. */
void tsr_rans_frequencies_of(const uint32_t *count, uint16_t *freq);

/* What coding these counts costs by the frequencies, in 1/256 of a bit. */
uint64_t tsr_rans_counts_cost(const uint32_t *count, const uint16_t *freq);

/* The stored table; the number of its bytes is a multiple of 4. */
size_t tsr_rans_put_table(const uint16_t *freq, uint8_t *bytes);

/* Read one from at most @nbytes; *@used are its bytes.  NULL, or what is wrong with it. */
const char *tsr_rans_get_table(const uint8_t *bytes, size_t nbytes, unsigned bits, uint16_t *freq,
			       size_t *used);

/* What the loops look symbols up in. */
void tsr_rans_encoder_table(const uint16_t *freq, struct tsr_rans_symbol *symbols);
void tsr_rans_decoder_table(const uint16_t *freq, uint32_t *slots);

/* How they move words: the same for all tables. */
void tsr_rans_encoder_moves(struct tsr_rans_encoder *e);
void tsr_rans_decoder_moves(struct tsr_rans_decoder *d);

/* tsr_rans_share() of @n counts at scale @t, and the sum of them: a loop per SIMD level. */
typedef uint32_t tsr_rans_shares_fn(const uint32_t *count, unsigned n, uint64_t t, uint32_t *share);
TSR_ISA_DECLARE(tsr_rans_shares_fn, rans_shares)

#endif
