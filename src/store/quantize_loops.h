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

/* @k and @y, and the sum of (y - x)^2; infinite if an integer is TSR_INTEGER_MAX or more. */
typedef double tsr_steps_fn(const float *x, const float *base, size_t n, float step, int32_t *k,
			    float *y);

/* @k and @y, and the sum of (u' - u)^2 of updates; infinite as above. */
typedef double tsr_ratios_fn(const float *m, const float *v, const float *w, size_t n, float eps,
			     float step, int32_t *k, float *y);

/*
 * Of elements of one row: @k and @y of variances that are predicted as @row + @column[i] (0 if @column is
 * NULL), both in bits; and the sum of (r' - r)^2 of roots.
 */
typedef double tsr_logs_fn(const float *v, size_t n, double row, const double *column, double step,
			   int32_t *k, float *y);

/* Values of integers. */
typedef void tsr_steps_undo_fn(const int32_t *k, const float *base, size_t n, float step, float *y);
typedef void tsr_ratios_undo_fn(const int32_t *k, const float *w, size_t n, float eps, float step,
				float *y);
typedef void tsr_logs_undo_fn(const int32_t *k, size_t n, double row, const double *column,
			      double step, float *y);

/* Sums of (a - b)^2, of (m / (sqrt(v) + eps))^2 and of values. */
typedef double tsr_differences_fn(const float *a, const float *b, size_t n);
typedef double tsr_updates_fn(const float *m, const float *v, size_t n, float eps);
typedef double tsr_total_fn(const float *x, size_t n);

/* Sums of the errors of updates and of roots, squared; to *all_ref is added what they are relative to. */
typedef double tsr_errors_fn(const float *const x[2], const float *const y[2], size_t n, float eps,
			     double *all_ref);
typedef double tsr_roots_fn(const float *x, const float *y, size_t n, double *all_ref);

/* The sum of the squares of the distances of BF16 numbers at @x. */
typedef double tsr_distances_fn(const float *x, size_t n);

TSR_ISA_DECLARE(tsr_steps_fn, quantize_steps)
TSR_ISA_DECLARE(tsr_ratios_fn, quantize_ratios)
TSR_ISA_DECLARE(tsr_logs_fn, quantize_logs)
TSR_ISA_DECLARE(tsr_steps_undo_fn, steps_undo)
TSR_ISA_DECLARE(tsr_ratios_undo_fn, ratios_undo)
TSR_ISA_DECLARE(tsr_logs_undo_fn, logs_undo)
TSR_ISA_DECLARE(tsr_differences_fn, sum_differences)
TSR_ISA_DECLARE(tsr_updates_fn, sum_updates)
TSR_ISA_DECLARE(tsr_total_fn, sum_total)
TSR_ISA_DECLARE(tsr_distances_fn, sum_distances)
TSR_ISA_DECLARE(tsr_errors_fn, sum_update_errors)
TSR_ISA_DECLARE(tsr_roots_fn, sum_root_errors)

#endif
