/* SPDX-License-Identifier: Apache-2.0 */
/* Masters: FP32 tensors whose narrow weights another tensor of the checkpoint has, bit for bit. */
#ifndef TSR_PACK_MASTERS_H
#define TSR_PACK_MASTERS_H

#include "base/tiles.h"
#include "ckpt/checkpoint_model.h"

/*
 * Set the `narrow` of those tensors of @c that look like masters: samples of them become samples of
 * a raw tensor.  @c has the codings to be used, @stored its tensors as they are in its files.
 */
enum tsr_status tsr_masters_find(const struct tsr_checkpoint *stored, struct tsr_checkpoint *c,
				 struct tsr_err *err);

/* Whether the first plane of a tile of @t, at @plane, is what t->narrow has there.  @room: as much. */
enum tsr_status tsr_masters_check(const struct tsr_checkpoint *stored, const struct tsr_tensor *t,
				  const struct tsr_tile *tile, const void *plane, void *room,
				  bool *is_ret, struct tsr_err *err);

/* Whether FP32 values round to the narrow ones that a plane has, to the bits. */
bool tsr_masters_round(const struct tsr_coding *coding, const uint16_t *narrow, const float *x,
		       size_t n);

/*
 * Of a master that shares its narrow weights: take each correction at which a decoded value rounds to another
 * narrow one, as half of the distance to that may, a step or two towards zero.  @x: the @n elements, against
 * which what is decoded then is measured.  False if some still round to others; those of a lossless codec are
 * not moved.
 */
bool tsr_masters_settle(const struct tsr_coding *coding, void *const plane[TSR_PLANES_MAX],
			const float *x, size_t n, struct tsr_measure *measure);

/* Note the tensors that might be masters by their shapes, and are not. */
enum tsr_status tsr_masters_note(struct tsr_checkpoint *c, struct tsr_err *err);

#endif
