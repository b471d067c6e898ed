/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over elements of quantizing and of errors, once per SIMD level: the same bits on each. */
#ifndef TSR_STORE_QUANTIZE_LOOPS_H
#define TSR_STORE_QUANTIZE_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"

/*
 * Integers are whole numbers that FP32 adds to 1.5 * 2^23 without rounding, so that adding rounds quotients
 * to the nearest one, ties to even.
 */
#define TSR_INTEGER_MAX 0x1p22f
#define TSR_ROUND_F32 0x1.8p23f
#define TSR_ROUND_F64 0x1.8p52

/* Sums of double in so many lanes, which are added at the end, in their order. */
#define TSR_SUM_LANES 16u

/* Integers @k; the largest quotient, of which those from TSR_INTEGER_MAX on have no integer. */
typedef float tsr_steps_fn(const float *x, const float *base, size_t n, float step, int32_t *k);
typedef float tsr_ratios_fn(const float *m, const float *v, size_t n, float eps, float step,
			    int32_t *k);

/*
 * Of elements of one row: @k of variances that are predicted as @row + @column[i] (@row if @column is NULL),
 * both in bits.
 */
typedef void tsr_logs_fn(const float *v, size_t n, double row, const double *column, double step,
			 int32_t *k);

/* Values of integers. */
typedef void tsr_steps_undo_fn(const int32_t *k, const float *base, size_t n, float step, float *y);
typedef void tsr_ratios_undo_fn(const int32_t *k, const float *w, size_t n, float eps, float step,
				float *y);
typedef void tsr_logs_undo_fn(const int32_t *k, size_t n, double row, const double *column,
			      double step, float *y);

/* The sum of (a - b)^2. */
typedef double tsr_differences_fn(const float *a, const float *b, size_t n);

/* Sums of the errors of updates and of roots, squared; to *all_ref is added what they are relative to. */
typedef double tsr_errors_fn(const float *const x[2], const float *const y[2], size_t n, float eps,
			     double *all_ref);
typedef double tsr_roots_fn(const float *x, const float *y, size_t n, double *all_ref);

/* The largest of the bits of values, of each only those in @mask. */
typedef uint32_t tsr_largest_bits_fn(const float *x, size_t n, uint32_t mask);

/* The sum of the squares of the distances of BF16 numbers at @x. */
typedef double tsr_distances_fn(const float *x, size_t n);

TSR_ISA_DECLARE(tsr_steps_fn, quantize_steps)
TSR_ISA_DECLARE(tsr_ratios_fn, quantize_ratios)
TSR_ISA_DECLARE(tsr_logs_fn, quantize_logs)
TSR_ISA_DECLARE(tsr_steps_undo_fn, steps_undo)
TSR_ISA_DECLARE(tsr_ratios_undo_fn, ratios_undo)
TSR_ISA_DECLARE(tsr_logs_undo_fn, logs_undo)
TSR_ISA_DECLARE(tsr_differences_fn, sum_differences)
TSR_ISA_DECLARE(tsr_distances_fn, sum_distances)
TSR_ISA_DECLARE(tsr_errors_fn, sum_update_errors)
TSR_ISA_DECLARE(tsr_roots_fn, sum_root_errors)
TSR_ISA_DECLARE(tsr_largest_bits_fn, largest_bits)

#endif
