/* SPDX-License-Identifier: Apache-2.0 */
/* Error metrics of a tensor that was encoded and decoded. */
#ifndef TERSOR_MEASURE_H
#define TERSOR_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"

#define TSR_MEASURE_LANES 8

/**
 * struct tsr_measure - How far FP32 values y are from the values x that they represent
 *
 * Start from all zeros and add runs of elements.  Sums are kept in binary64 in a fixed number of
 * lanes (element i of a run goes to lane i mod TSR_MEASURE_LANES), so a result depends on the
 * lengths and order of the runs only, not on the SIMD level.
 */
struct tsr_measure {
	uint64_t n;
	uint64_t exact; /* elements with the same bits */
	uint64_t nonfinite; /* x is NaN or infinite; such elements spoil the sums, tsr_diff() keeps
				 * them out */
	uint64_t negative; /* x < 0 */
	uint64_t overflow; /* x is finite, y is not */
	uint64_t flushed; /* x is not 0, y is 0 */
	uint64_t zeros; /* x is 0: not counted in mean_rel */
	uint32_t max_ulp; /* largest distance in FP32 bit patterns, -0 and +0 being one */
	float max_abs; /* largest |x - y|, rounded to FP32 */
	double sum_rel[TSR_MEASURE_LANES]; /* |x - y| / |x| over nonzero x */
	double sum_xx[TSR_MEASURE_LANES]; /* x^2 */
	double sum_dd[TSR_MEASURE_LANES]; /* (x - y)^2 */
	double sum_xd[TSR_MEASURE_LANES]; /* x (x - y) */
};

/* The figures that are reported and that bounds are set on. */
enum tsr_metric {
	TSR_METRIC_MAX_ABS, /* max |x - y| */
	TSR_METRIC_MAX_ULP, /* max distance in ULP of FP32 */
	TSR_METRIC_MEAN_REL, /* mean |x - y| / |x| over nonzero x */
	TSR_METRIC_NMSE, /* sum (x - y)^2 / sum x^2 */
	TSR_METRIC_COSINE, /* cosine of the angle between x and y; bounds are on 1 - cosine */
	TSR_METRIC_COUNT
};

/* "abs", "ulp", "rel", "nmse", "cosine". */
TSR_API const char *tsr_metric_name(enum tsr_metric metric);
TSR_API bool tsr_metric_find(const char *name, enum tsr_metric *metric_ret);

/*
 * The value of a metric.  For no elements, or all-zero x that y equals: 0, and 1 for the cosine.
 * For all-zero x that y does not equal: infinity, and 0 for the cosine.
 */
TSR_API double tsr_measure_value(const struct tsr_measure *m, enum tsr_metric metric);

/* The value that a bound limits: the value itself, or 1 - cosine. */
TSR_API double tsr_measure_error(const struct tsr_measure *m, enum tsr_metric metric);

#endif
