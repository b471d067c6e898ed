/* SPDX-License-Identifier: Apache-2.0 */
/* Floating-point elements in another type. */
#ifndef TSR_PACK_AS_DTYPE_H
#define TSR_PACK_AS_DTYPE_H

#include <stddef.h>

#include "tersor/checkpoint.h"

/* Whether a tensor of a model is written in the type that is asked for: what is quantized stays as it is. */
bool tsr_takes_dtype(const struct tsr_tensor *t);

/*
 * @n elements of @from (F64, F32, BF16 or F16), rounded once to nearest, into @out as @to (F32, BF16
 * or F16); the arrays do not overlap.  Returns how many finite elements became infinite.
 */
size_t tsr_as_dtype(enum tsr_dtype from, const void *in, size_t n, enum tsr_dtype to, void *out);

#endif
