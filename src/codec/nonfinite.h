/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of values that are not finite. */
#ifndef TSR_CODEC_NONFINITE_H
#define TSR_CODEC_NONFINITE_H

#include <stddef.h>
#include <stdint.h>

#include "tersor/dtype.h"

/*
 * How many values in @nbytes bytes of type @dtype are infinite or NaN; each part of a complex number
 * counts for itself.  0 for types without such values.  @data needs no alignment.
 */
uint64_t tsr_count_nonfinite(enum tsr_dtype dtype, const void *data, size_t nbytes);

/* The index of the first of them, counted in values (in a complex number: parts), or SIZE_MAX. */
size_t tsr_first_nonfinite(enum tsr_dtype dtype, const void *data, size_t nbytes);

#endif
