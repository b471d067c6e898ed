/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of coded planes, per SIMD level. */
#ifndef TSR_ENTROPY_RANS_LOOPS_H
#define TSR_ENTROPY_RANS_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"
#include "entropy/entropy.h"
#include "entropy/rans_math.h"

/*
 * What the loops look up, by table if there are some: symbols, or slots (tsr_rans_entry()); and how
 * eight words of 16 bits move, given the lanes that shed or lack one: to the end of 16 bytes, or from the
 * beginning of as many, which both halves of a register have, to the lanes.
 */
struct tsr_rans_encoder {
	struct tsr_rans_symbol symbols[256 * TSR_RANS_TABLE_COUNT];
	uint8_t move[256][16];
};

/* What making a table may overwrite behind its slots. */
#define TSR_RANS_SLOTS_MORE 8u

struct tsr_rans_decoder {
	uint32_t slots[(TSR_RANS_TABLE_COUNT << TSR_RANS_BITS) + TSR_RANS_SLOTS_MORE];
	uint8_t move[256][32];
};

/* What the encoder may overwrite below its words. */
#define TSR_RANS_MARGIN 16u

/*
 * Push @n symbols, 1 to TSR_RANS_SEGMENT, last to first, from @states, which they change.  The words
 * end at @end, and their first is returned; TSR_RANS_MARGIN bytes and 2 for each symbol are below @end.
 */
typedef uint8_t *tsr_rans_encode_fn(const struct tsr_rans_encoder *e, const uint8_t *symbols,
				    size_t n, uint32_t *states, uint8_t *end);

/* The same given the tables of symbols. */
typedef uint8_t *tsr_rans_encode_contexts_fn(const struct tsr_rans_encoder *e,
					     const uint8_t *tables, const uint8_t *symbols,
					     size_t n, uint32_t *states, uint8_t *end);

/*
 * Pop @n symbols, 1 to TSR_RANS_SEGMENT.  False unless exactly @nwords words were taken; the caller
 * checks what became of @states.
 */
typedef bool tsr_rans_decode_fn(const struct tsr_rans_decoder *d, const uint8_t *words,
				size_t nwords, uint32_t *states, uint8_t *symbols, size_t n);

/* The same given the tables of symbols. */
typedef bool tsr_rans_decode_contexts_fn(const struct tsr_rans_decoder *d, const uint8_t *tables,
					 const uint8_t *words, size_t nwords, uint32_t *states,
					 uint8_t *symbols, size_t n);

/*
 * Elements of more than one byte to streams of bytes, lowest byte first, and back; stream k begins at
 * @streams + k * TSR_ENTROPY_PIECE.
 */
typedef void tsr_rans_split_fn(struct tsr_entropy_kind kind, const uint8_t *plain, size_t n,
			       uint8_t *streams);
typedef void tsr_rans_merge_fn(struct tsr_entropy_kind kind, const uint8_t *streams, size_t n,
			       uint8_t *plain);

/*
 * How often each byte occurs, and how often in each of @ncontexts contexts, of which there are at most
 * TSR_RANS_CONTEXT_COUNT.
 */
typedef void tsr_rans_count_fn(const uint8_t *symbols, size_t n, uint32_t *count);
typedef void tsr_rans_count_contexts_fn(const uint8_t *contexts, const uint8_t *symbols, size_t n,
					unsigned ncontexts, uint32_t *count);

TSR_ISA_DECLARE(tsr_rans_encode_fn, rans_encode)
TSR_ISA_DECLARE(tsr_rans_decode_fn, rans_decode)
TSR_ISA_DECLARE(tsr_rans_encode_contexts_fn, rans_encode_contexts)
TSR_ISA_DECLARE(tsr_rans_decode_contexts_fn, rans_decode_contexts)
TSR_ISA_DECLARE(tsr_rans_count_contexts_fn, rans_count_contexts)
TSR_ISA_DECLARE(tsr_rans_split_fn, rans_split)
TSR_ISA_DECLARE(tsr_rans_merge_fn, rans_merge)
TSR_ISA_DECLARE(tsr_rans_count_fn, rans_count)

#endif
