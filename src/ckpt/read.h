/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of stored tensors as FP32 values: decoded, widened or as they are. */
#ifndef TSR_CKPT_READ_H
#define TSR_CKPT_READ_H

#include "ckpt/checkpoint_model.h"

/* Elements that are read at once; what a compressed tensor of another tool is decoded by. */
#define TSR_READ_MAX 65536u

/* Memory that reading needs; its contents do not matter. */
struct tsr_read_scratch {
	unsigned char plane[TSR_PLANES_MAX][2 * TSR_READ_MAX * 4];
	float decoded[2 * TSR_READ_MAX];
	float beside[TSR_READ_MAX];
};

/* Whether a tensor's elements are available as FP32 values: F32, F16, BF16, or anything packed. */
bool tsr_tensor_has_f32(const struct tsr_tensor *t);

/*
 * The planes of elements @first to @first + @n - 1 of a tensor with a codec, into memory as in struct
 * tsr_read_scratch; @n is at most TSR_READ_MAX.  Planes are read from the start of a group or word, so
 * *before_ret more elements come first.
 */
enum tsr_status tsr_tensor_read_planes(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				       uint64_t first, size_t n, void *const plane[],
				       size_t *before_ret, struct tsr_err *err);

/* Elements @first to @first + @n - 1 of a tensor without a codec; @narrow: room for @n 16-bit values. */
enum tsr_status tsr_tensor_read_plain(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				      uint64_t first, size_t n, void *narrow, float *x,
				      struct tsr_err *err);

/*
 * What has the values that the codec of a tensor, stored or to be, works beside: of a relative one the
 * variance, of a low-rank one the tensor itself, which has factors.  NULL of any other.
 */
const struct tsr_tensor *tsr_tensor_beside(const struct tsr_checkpoint *c,
					   const struct tsr_tensor *t);

/*
 * Elements @first to @first + @n - 1 of the product of the factors of a tensor in a low-rank coding: those in
 * @coding, or else in the plane that @c has.
 */
enum tsr_status tsr_tensor_products(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				    const struct tsr_coding *coding, uint64_t first, size_t n,
				    float *x, struct tsr_err *err);

/*
 * The factors that these are made of, where @first is in the first column: of each stage codes of the rows
 * that elements are of, then of all columns; then scales in the same order.
 */
enum tsr_status tsr_tensor_factors(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				   const struct tsr_coding *coding, uint64_t first, size_t n,
				   unsigned char *ret, struct tsr_err *err);

/* Elements @first to @first + @n - 1 of a tensor that tsr_tensor_has_f32(). */
enum tsr_status tsr_tensor_read_f32(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				    uint64_t first, size_t n, struct tsr_read_scratch *scratch,
				    float *x, struct tsr_err *err);

#endif
