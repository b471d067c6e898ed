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
	uint64_t sign_lost; /* x is -0, y is +0 */
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
	TSR_METRIC_COUNT,
	/* For bounds only: tsr_update_measure_nmse() of a momentum and its variance, on the latter */
	TSR_METRIC_UPDATE_NMSE,
	/* For bounds only: tsr_weight_step() of a weight with its momentum and variance */
	TSR_METRIC_WEIGHT_STEP
};

/* "abs", "ulp", "rel", "nmse", "cosine", "update-nmse", "weight-step". */
TSR_API const char *tsr_metric_name(enum tsr_metric metric);
TSR_API bool tsr_metric_find(const char *name, enum tsr_metric *metric_ret);

/*
 * The value of a metric.  For no elements, or all-zero x that y equals: 0, and 1 for the cosine.
 * For all-zero x that y does not equal: infinity, and 0 for the cosine.
 */
TSR_API double tsr_measure_value(const struct tsr_measure *m, enum tsr_metric metric);

/* The value that a bound limits: the value itself, or 1 - cosine. */
TSR_API double tsr_measure_error(const struct tsr_measure *m, enum tsr_metric metric);

/**
 * struct tsr_measured - What is left of a struct tsr_measure once nothing more is added to it
 * @n, @exact, @nonfinite, @negative, @overflow, @flushed, @sign_lost, @max_ulp, @max_abs: as there
 * @mean_rel, @nmse, @one_minus_cosine: tsr_measure_error() of these metrics
 * @rms_error: the root of the mean square of x - y
 *
 * A quarter of its size: there is one for every tensor of a checkpoint.
 */
struct tsr_measured {
	uint64_t n;
	uint64_t exact;
	uint64_t nonfinite;
	uint64_t negative;
	uint64_t overflow;
	uint64_t flushed;
	uint64_t sign_lost;
	uint32_t max_ulp;
	float max_abs;
	double mean_rel;
	double nmse;
	double one_minus_cosine;
	double rms_error;
};

/* As tsr_measure_value() and tsr_measure_error().  Thread-safe. */
TSR_API double tsr_measured_value(const struct tsr_measured *m, enum tsr_metric metric);
TSR_API double tsr_measured_error(const struct tsr_measured *m, enum tsr_metric metric);

/* --- Updates ---------------------------------------------------------------------------------- */

/* The eps of Adam and of its relatives where nothing says another. */
#define TSR_UPDATE_EPS 1e-8f

/* A momentum and a variance of the same elements. */
struct tsr_moments {
	const float *m, *v;
};

/**
 * struct tsr_update_measure - How far the updates by decoded moments are from those by the true ones
 *
 * An optimizer of Adam's kind moves a weight by lr * u with u = m / (sqrt(v) + eps), so a small error
 * of v can be a large one of what is done with it.  Each of the three operations is rounded to
 * binary32; corrections of bias, which depend on the number of steps, are left out.  u is of the
 * moments before, w of what came back of them.  t is of the momentum before and of the variance that
 * came back, one gradient later: v_after + (v - v_after) * 2^-10, which is what beta2 = 0.999 and a g^2
 * that is v make of it.  For the steps that follow renew the momentum within some ten gradients and go on
 * dividing by that variance; a momentum stored as a ratio to its variance has w near u whatever became
 * of v, and only t shows it.
 *
 * Start from all zeros and add runs of elements.  As in struct tsr_measure, sums are in binary64 and
 * element i of a run goes to lane i mod TSR_MEASURE_LANES: a result depends on the lengths and the
 * order of the runs only, not on the SIMD level.  Tersor adds the tiles of docs/internals/format.md in order.
 */
struct tsr_update_measure {
	uint64_t n;
	uint64_t nonfinite; /* u is NaN or infinite, as of a negative v: not in the other figures */
	uint64_t
		overflow; /* u is finite, w or t is not: not in the other figures, the NMSE is infinite */
	uint64_t
		exposed; /* v is not 0 and comes back 0 under a momentum that does not: w is m / eps */
	float max_before; /* the largest |u| */
	float max_after; /* the largest |w| */
	double sum_uu[TSR_MEASURE_LANES]; /* u^2 */
	double sum_dd[TSR_MEASURE_LANES]; /* (u - w)^2 */
	double sum_tt[TSR_MEASURE_LANES]; /* (u - t)^2 */
};

/* The share of a variance that a gradient renews in a struct tsr_update_measure. */
#define TSR_UPDATE_RENEWED 0x1p-10f

/*
 * Add @n elements.  @before and @after may be the same arrays, unaligned, and share one of them: a
 * moment that is stored as it is.  @eps counts as 2^-126 where it is smaller, so that u of 0 and 0 is 0.
 * Not thread-safe on one @u.
 */
TSR_API void tsr_update_measure_add(struct tsr_update_measure *u, const struct tsr_moments *before,
				    const struct tsr_moments *after, size_t n, float eps);

/* Add what @from has seen, after what @into has. */
TSR_API void tsr_update_measure_merge(struct tsr_update_measure *into,
				      const struct tsr_update_measure *from);

/*
 * The update's NMSE: the larger of sum (u - w)^2 and sum (u - t)^2, over sum u^2.  0 if all w and t equal
 * their u, and for no elements; infinite if u are all zero and the others are not, and with any overflow.
 */
TSR_API double tsr_update_measure_nmse(const struct tsr_update_measure *u);

/* What is left of it once nothing more is added; @nmse: tsr_update_measure_nmse(). */
struct tsr_update_measured {
	uint64_t n;
	uint64_t nonfinite;
	uint64_t overflow;
	uint64_t exposed;
	float max_before;
	float max_after;
	double nmse;
	double rms; /* the root of the mean square of u */
};

/* Elements of a variance that Adam cannot have made (docs/internals/numerics.md): how many, and the first. */
struct tsr_breach {
	uint64_t n;
	uint64_t element;
	float m, v; /* its momentum and itself; of two checkpoints the variance before and after */
};

/*
 * What rounding does to a weight, in steps of its optimizer: the root mean square of its errors over that of
 * lr times its updates.  At 1 packing moves weights as far as a step does.  @lr is positive; 0 without
 * updates.
 */
TSR_API double tsr_weight_step(const struct tsr_measured *weight,
			       const struct tsr_update_measured *update, double lr);

/* The largest of them that `pack --auto` leaves; 1 and more is told. */
#define TSR_WEIGHT_STEP_MAX 0.25

/* How serious a finding is. */
enum tsr_finding_level { TSR_FINDING_FINE, TSR_FINDING_WATCH, TSR_FINDING_BAD };

/* "fine", "watch", "bad". */
TSR_API const char *tsr_finding_level_name(enum tsr_finding_level level);

/* The least NMSE of an update to watch, 3.2% of its length, and the least that is bad, 10%. */
#define TSR_UPDATE_WATCH 1e-3
#define TSR_UPDATE_BAD 1e-2

/* What pack, verify, audit and replay call an update with this NMSE. */
TSR_API enum tsr_finding_level tsr_update_level(double nmse);

#endif
