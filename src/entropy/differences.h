/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces coded by what differs from older elements of the same place (format.md, "Differences").
 * Elements are integers in their order, and the older ones choose the tables, so that the elements of a
 * piece are decoded independently of each other.
 */
#ifndef TSR_ENTROPY_DIFFERENCES_H
#define TSR_ENTROPY_DIFFERENCES_H

#include <stddef.h>
#include <stdint.h>

#include "entropy/entropy.h"

/* What the elements are. */
enum tsr_difference_of {
	TSR_DIFFERENCE_INTEGERS,
	TSR_DIFFERENCE_FLOATS, /* sign and magnitude */
	TSR_DIFFERENCE_VARIANCES, /* codes of `sqrt8` with scales in e8m8 */
};

/*
 * Elements of @width bytes, and with them, if it is not 0, the elements of another plane of @correction
 * bytes, signed: those of a float and what is between it and the next one are one integer.  They have
 * 4 bytes or less together; width 0: no differences.
 */
struct tsr_difference_kind {
	enum tsr_difference_of of;
	unsigned width, correction;
	unsigned mantissa; /* bits behind the exponent of a float */
};

/*
 * The older elements of a piece: those of the plane, and of the correction.  For codes of variances their
 * scales, and the scales of the elements that are coded, both from that of the first element on; @first
 * is where that is in the tensor.
 */
struct tsr_entropy_old {
	struct tsr_difference_kind kind;
	const uint8_t *plane, *correction;
	uint64_t first;
	struct tsr_entropy_scales old_scales, scales;
};

/* The first byte of a piece of differences, and of one whose elements are with those of plane 0. */
#define TSR_ENTROPY_DIFFERENCES 4u
#define TSR_ENTROPY_WITHIN 5u

/*
 * Code @n elements, 1 to TSR_ENTROPY_PIECE, to @coded, which has room for @room bytes.  The number of bytes,
 * a multiple of 4, or 0 if that is not enough.
 */
size_t tsr_entropy_encode_differences(struct tsr_entropy *e, const struct tsr_entropy_old *old,
				      const void *plane, const void *correction, size_t n,
				      void *coded, size_t room);

/* Decode @n elements.  NULL, or what is wrong, as of tsr_entropy_decode(). */
const char *tsr_entropy_decode_differences(struct tsr_entropy *e, const struct tsr_entropy_old *old,
					   const void *coded, size_t nbytes, void *plane,
					   void *correction, size_t n);

#endif
