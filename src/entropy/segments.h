/* SPDX-License-Identifier: Apache-2.0 */
/* The segments of coded streams, with and without contexts, and the workspace of coding. */
#ifndef TSR_ENTROPY_SEGMENTS_H
#define TSR_ENTROPY_SEGMENTS_H

#include "entropy/contexts.h"
#include "entropy/frequencies.h"
#include "entropy/rans_loops.h"

#define TSR_RANS_SYMBOLS 256u

struct tsr_entropy {
	struct tsr_rans_encoder encoder;
	struct tsr_rans_decoder decoder;
	uint8_t words[TSR_RANS_MARGIN + 2 * TSR_RANS_SEGMENT]; /* of a segment, at the end */
	struct tsr_contexts_means means;
	uint8_t contexts[TSR_ENTROPY_PIECE];
	uint32_t differences[TSR_ENTROPY_PIECE], expected[TSR_ENTROPY_PIECE];
	uint8_t symbols[TSR_ENTROPY_PIECE]; /* of differences */
	uint8_t streams[]; /* TSR_ENTROPY_PIECE for each byte of an element */
};

/* Nothing in a piece begins at another multiple. */
static inline size_t tsr_rans_padded(size_t nbytes)
{
	return (nbytes + 3) / 4 * 4;
}

/*
 * The segments of @n symbols, each by the one of @tables of the encoder, NULL: all by the first, to at most
 * @room bytes; 0 if they do not fit.
 */
size_t tsr_rans_put_segments(struct tsr_entropy *e, const uint8_t *tables, const uint8_t *symbols,
			     size_t n, uint8_t *to, size_t room);

/* Decode them by the tables of the decoder; without contexts @contexts is NULL.  NULL, or what is wrong. */
const char *tsr_rans_get_segments(struct tsr_entropy *e, const uint8_t *contexts,
				  const uint8_t *bytes, size_t nbytes, uint8_t *symbols, size_t n);

/*
 * The body of a stream without contexts, given how often symbols occur, to @to, which has room for the
 * symbols and padding.
 */
size_t tsr_rans_put_stream(struct tsr_entropy *e, const uint8_t *symbols, const uint32_t *count,
			   size_t n, uint8_t *to, enum tsr_rans_mode *mode);

/* Decode one. */
const char *tsr_rans_get_stream(struct tsr_entropy *e, unsigned mode, const uint8_t *bytes,
				size_t nbytes, uint8_t *symbols, size_t n);

#endif
