/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of FP32 values as BF16 or F16, and back: tensors of these types on their way through codecs. */
#ifndef TSR_CODEC_NARROW_H
#define TSR_CODEC_NARROW_H

#include "tersor/codec.h"

/* Whether a codec can hold a tensor of this type: F32, or BF16 and F16 if elements share scales. */
bool tsr_codec_takes(const struct tsr_codec *codec, enum tsr_dtype dtype);

/* @n values of @dtype, F32, BF16 or F16, as FP32; exact.  The arrays do not overlap. */
void tsr_widen(enum tsr_dtype dtype, const void *narrow, size_t n, float *x);

/* Round @n values to those that @dtype has: F32 (nothing changes), BF16 or F16. */
void tsr_round_to(enum tsr_dtype dtype, float *x, size_t n);

/* The same, and have them in @dtype at the start of the memory of @x, one after the other. */
void tsr_narrow_in_place(enum tsr_dtype dtype, float *x, size_t n);

#endif
