/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training state as integers whose error is bounded: weights in steps from an earlier version, momenta as
 * ratios to the root of their variance, variances as logarithms (docs/internals/format.md, section 19.2).
 */
#ifndef TSR_STORE_QUANTIZE_H
#define TSR_STORE_QUANTIZE_H

#include "store/integers.h"

/*
 * Each finds the coarsest step with an error of at most @bound, fills the integers @k and what they decode
 * to, and returns the step; 0 if the values have none: they are to be stored in another way.  Values are
 * finite.  The same bits on every machine.
 */

/*
 * @x: weights; @base: what they were; @last: what they were in a later version, or the same.  Error: of the
 * displacement since then, sum (y - x)^2 / sum (x - last)^2.
 */
float tsr_quantize_steps(const float *x, const float *base, const float *last, size_t n,
			 double bound, int32_t *k, float *y);
void tsr_dequantize_steps(const int32_t *k, const float *base, size_t n, float step, float *y);

/*
 * @m: momenta; @v: their variances, @w: what these decode to.  Error: of the update u = m / (sqrt(v) + eps),
 * sum (u' - u)^2 / sum u^2, where u' has the decoded momentum and variance.
 */
float tsr_quantize_ratios(const float *m, const float *v, const float *w, size_t n, float eps,
			  double bound, int32_t *k, float *y);
void tsr_dequantize_ratios(const int32_t *k, const float *w, size_t n, float eps, float step,
			   float *y);

/*
 * Variances: the bits of an FP32 number are its logarithm, but for the form of the significand (Mitchell
 * 1962).  What is predicted of them is @all plus the numbers of the row and the column in @lines, in units
 * of 2^20; @lines is NULL for a block without rows.  Error: of the roots, sum (r' - r)^2 / sum r^2.
 * @w has room for the predictions of a row.
 */
struct tsr_logs {
	int32_t all;
	uint32_t step; /* of the bits */
	const int8_t *lines;
};

/* The smallest and the largest step. */
#define TSR_LOG_STEP_MIN 16u
#define TSR_LOG_STEP_MAX (1u << 27)

/* The means of a block of variances, to @w->lines; *all_ret is that of all. */
void tsr_logs_find_means(struct tsr_integers *w, const struct tsr_block *b, const float *v,
			 int32_t *all_ret);
uint32_t tsr_quantize_logs(struct tsr_integers *w, const struct tsr_block *b, struct tsr_logs *logs,
			   const float *v, double bound, int32_t *k, float *y);
void tsr_dequantize_logs(struct tsr_integers *w, const struct tsr_block *b,
			 const struct tsr_logs *logs, const int32_t *k, float *y);

#endif
