/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CKPT_READ_H
#define TSR_CKPT_READ_H

#include "tersor/checkpoint.h"

/* The most elements that tsr_tensor_read_f32() reads at once. */
#define TSR_READ_MAX 65536u

/* Memory that one call needs; its contents do not matter. */
struct tsr_read_scratch {
	unsigned char plane[TSR_PLANES_MAX][2 * TSR_READ_MAX * 4];
	float decoded[2 * TSR_READ_MAX];
};

/* Whether the elements can be had as FP32 values: F32, F16, BF16, or anything packed. */
bool tsr_tensor_has_f32(const struct tsr_tensor *t);

/*
 * The planes of elements @first to @first + @n - 1 of a tensor with a codec, into memory as in struct
 * tsr_read_scratch; @before_ret elements come before them, as they begin with a run.
 */
enum tsr_status tsr_tensor_read_planes(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				       uint64_t first, size_t n, void *const plane[],
				       size_t *before_ret, struct tsr_err *err);

/* Elements @first to @first + @n - 1 of one without as FP32, by way of @n FP16 or BF16 values. */
enum tsr_status tsr_tensor_read_plain(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				      uint64_t first, size_t n, void *narrow, float *x,
				      struct tsr_err *err);

/* Elements @first to @first + @n - 1 as FP32, decoded or widened; @n at most TSR_READ_MAX. */
enum tsr_status tsr_tensor_read_f32(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				    uint64_t first, size_t n, struct tsr_read_scratch *scratch,
				    float *x, struct tsr_err *err);

#endif
