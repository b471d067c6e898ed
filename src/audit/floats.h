/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of tensors of any floating-point type as FP32 values. */
#ifndef TSR_AUDIT_FLOATS_H
#define TSR_AUDIT_FLOATS_H

#include "ckpt/read.h"

/*
 * Whether a tensor's elements are numbers that can be FP32 values: packed, F64, F32, F16, BF16, or an 8-bit
 * float with a sign.
 */
bool tsr_tensor_is_floating(const struct tsr_tensor *t);

/* Elements @first to @first + @n - 1 of such a tensor; F64 is rounded to nearest. */
enum tsr_status tsr_floats_read(const struct tsr_checkpoint *c, const struct tsr_tensor *t,
				uint64_t first, size_t n, struct tsr_read_scratch *scratch,
				float *x, struct tsr_err *err);

#endif
