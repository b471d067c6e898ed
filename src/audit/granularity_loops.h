/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of measuring 8-bit floats by granularity, each once per SIMD level. */
#ifndef TSR_AUDIT_GRANULARITY_LOOPS_H
#define TSR_AUDIT_GRANULARITY_LOOPS_H

#include <stddef.h>

#include "base/isa.h"
#include "codec/tables.h"

/* A format, and what its table says. */
struct tsr_fp8_table {
	const struct tsr_table_row *row;
	const uint32_t *entry; /* of the row's first bucket */
	float largest;
};

/*
 * Each element of @absmax becomes the largest of itself and the magnitudes of its @width elements of @x; the
 * last one may have fewer.
 */
typedef void tsr_column_max_fn(const float *x, size_t n, size_t width, float *absmax);
TSR_ISA_DECLARE(tsr_column_max_fn, column_max)

/* @y: what @x becomes if it is stored as @t, each element with its own divisor and factor. */
typedef void tsr_through_fp8_fn(const struct tsr_fp8_table *t, const float *x, size_t n,
				const float *divisor, const float *factor, float *y);
TSR_ISA_DECLARE(tsr_through_fp8_fn, through_fp8)

#endif
