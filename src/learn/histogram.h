/* SPDX-License-Identifier: Apache-2.0 */
/* How often values between -1 and 1 occur: what a codebook is learned from. */
#ifndef TSR_LEARN_HISTOGRAM_H
#define TSR_LEARN_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

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

#endif
