/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram of values, and the values that it is best rounded to. */
#ifndef TSR_LEARN_HISTOGRAM_H
#define TSR_LEARN_HISTOGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/status.h"

/* Of equal width.  The centre of bin i is (2i + 1 - 4096) / 4096. */
#define TSR_HISTOGRAM_BINS 4096

struct tsr_histogram {
	uint64_t count[TSR_HISTOGRAM_BINS];
	uint64_t nonfinite; /* values in blocks that are not finite: not counted */
};

/*
 * Count @n values in blocks of @block, the last one shorter, each divided by the largest magnitude of
 * its block; those of a block of zeros are zeros.
 */
void tsr_histogram_add(struct tsr_histogram *h, const float *x, size_t n, size_t block);

/* Add what @from has counted. */
void tsr_histogram_merge(struct tsr_histogram *into, const struct tsr_histogram *from);

/* How many bins are not empty. */
unsigned tsr_histogram_nonempty(const uint64_t *count);

/* --- The values that a histogram is best rounded to: the exact optimum (Gefen, Algorithm 3) --- */

/**
 * tsr_optimum() - Choose the values with the least squared error
 * @count:  of @nbins bins of equal width from -1 to 1, of each of which the centre counts
 * @nbins:  at most TSR_HISTOGRAM_BINS
 * @k:      how many values, 1 to 256
 * @forced: the first value is -1, the last is +1
 * @value:  out: @k values, ascending; the centre of the last bin is repeated if there are fewer
 *          nonempty bins
 *
 * Of several optima the one whose last clusters begin lowest.  A layer of the dynamic programme finds
 * the best beginnings of all clusters by divide and conquer, as they do not decrease: O(k b log b).
 *
 * Return: TSR_OK or TSR_E_NOMEM.
 */
enum tsr_status tsr_optimum(const uint64_t *count, unsigned nbins, unsigned k, bool forced,
			    float *value, struct tsr_err *err);

/*
 * The squared error of rounding the centres of bins to the nearest of @k ascending values, over the sum
 * of their squares; 0 of nothing.
 */
double tsr_optimum_nmse(const uint64_t *count, unsigned nbins, const float *value, unsigned k);

#endif
