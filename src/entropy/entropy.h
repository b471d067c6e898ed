/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entropy coding of planes, a piece at a time and in memory (format.md, "Coded planes"): rANS of
 * 32 interleaved states (Duda, arXiv 1311.2540; Giesen, arXiv 1402.3392), with tables in each piece.
 * A piece depends on no other, so pieces are coded and decoded in any order and by any thread, and
 * the same elements give the same bytes on every SIMD level and GPU.
 */
#ifndef TSR_ENTROPY_ENTROPY_H
#define TSR_ENTROPY_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/dtype.h"

/* Most elements of a piece; the pieces of a plane have these, and the last one what is left. */
#define TSR_ENTROPY_PIECE 262144u

/* Most bytes of an element. */
#define TSR_ENTROPY_WIDTH 8u

/*
 * How elements are taken apart into streams of bytes, one per byte of an element.  Of types whose
 * exponent has 8 bits behind the sign, the sign is moved to the end first: the exponent is one
 * stream then.
 */
struct tsr_entropy_kind {
	unsigned width; /* bytes of an element, 1 to TSR_ENTROPY_WIDTH */
	bool rotated; /* the sign moves to the end: BF16, F32 */
};

/* The kind of a plane with elements of @dtype; width 0: not coded, since elements are no whole bytes. */
struct tsr_entropy_kind tsr_entropy_kind(enum tsr_dtype dtype);

/* What coding and decoding need besides: for elements of up to @width bytes, for one thread at a time. */
struct tsr_entropy;

/* NULL when out of memory; to be freed with tsr_entropy_free(), which takes NULL. */
struct tsr_entropy *tsr_entropy_new(unsigned width);
void tsr_entropy_free(struct tsr_entropy *e);

/* The pieces of a plane of @n elements. */
static inline uint64_t tsr_entropy_pieces(uint64_t n)
{
	return n / TSR_ENTROPY_PIECE + (n % TSR_ENTROPY_PIECE != 0);
}

/* The most bytes that a coded piece of @n elements has. */
size_t tsr_entropy_bound(struct tsr_entropy_kind kind, size_t n);

/*
 * Code @n elements, 0 to TSR_ENTROPY_PIECE, to @coded, which has room for tsr_entropy_bound(), and return
 * the number of bytes there, which is a multiple of 4: 0 for no elements.
 */
size_t tsr_entropy_encode(struct tsr_entropy *e, struct tsr_entropy_kind kind, const void *plain,
			  size_t n, void *coded);

/*
 * Decode a piece of @n elements, 0 to TSR_ENTROPY_PIECE, from exactly @nbytes bytes, which may be anything.
 * NULL if it worked; otherwise what is wrong with the bytes, as the rest of a message "piece 3 of it: ...",
 * and @plain is not to be used.
 */
const char *tsr_entropy_decode(struct tsr_entropy *e, struct tsr_entropy_kind kind,
			       const void *coded, size_t nbytes, void *plain, size_t n);

/* --- Codes of variances ---------------------------------------------------------------------- */

/*
 * Scales in e8m8, from that of the piece's first element on.  With @row elements to a row no group
 * crosses a row; with 0 groups are flat.
 */
struct tsr_entropy_scales {
	const uint16_t *scales;
	uint64_t row;
	uint32_t group;
};

/*
 * Where a piece of codes of a variance is in its tensor, and its scales.  It must be the same for encoding
 * and decoding.
 */
struct tsr_entropy_variance {
	uint64_t first,
		columns; /* the piece's first element; elements of the tensor's last dimension */
	struct tsr_entropy_scales scales;
	bool logarithmic; /* codes of log8, with scales from tsr_entropy_log_scale() */
};

/* Whether decoding a piece of codes needs its scales; any bytes will do. */
bool tsr_entropy_has_contexts(const void *coded, size_t nbytes);

/* As tsr_entropy_encode() and tsr_entropy_decode() for codes of a variance, with tables by contexts. */
size_t tsr_entropy_encode_codes(struct tsr_entropy *e, const struct tsr_entropy_variance *v,
				const void *codes, size_t n, void *coded);
const char *tsr_entropy_decode_codes(struct tsr_entropy *e, const struct tsr_entropy_variance *v,
				     const void *coded, size_t nbytes, void *codes, size_t n);

/* --- Symbols with any contexts ---------------------------------------------------------------- */

/* One more than the largest context. */
#define TSR_ENTROPY_CONTEXTS 16u

/*
 * As tsr_entropy_encode() and tsr_entropy_decode() for @n bytes, with tables by @contexts, one per symbol,
 * which the decoder must have, too.  NULL: one table.
 */
size_t tsr_entropy_encode_symbols(struct tsr_entropy *e, const uint8_t *contexts,
				  const void *symbols, size_t n, void *coded);
const char *tsr_entropy_decode_symbols(struct tsr_entropy *e, const uint8_t *contexts,
				       const void *coded, size_t nbytes, void *symbols, size_t n);

#endif
