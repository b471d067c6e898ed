/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit floats by granularity over all tensors, and what follows from it. */
#ifndef TSR_GRANULARITY_FIGURES_H
#define TSR_GRANULARITY_FIGURES_H

#include "tersor/granularity.h"

/* One granularity over all tensors; nearest rank. */
struct tsr_granularity_row {
	const struct tsr_granularity *granularity;
	double median, worst; /* NMSE of a tensor */
	const struct tsr_granularity_tensor *worst_tensor;
	uint64_t zeroed;
	double bytes; /* per element */
	uint64_t nfar; /* tensors that lose much more than in 1x16, COAT's granularity */
};

/*
 * Much more: the NMSE is more than this many times as large, or this share of the elements more becomes 0.
 * The NMSE alone does not see what an outlier does to the others.
 */
#define TSR_GRANULARITY_FAR 2
#define TSR_GRANULARITY_FAR_ZEROED 0.01

struct tsr_granularity_figures {
	size_t ntensors; /* that are measured and are not all zeros */
	size_t nzero, nempty, nother; /* all zeros; no elements; no floating-point numbers */
	size_t nnonfinite; /* tensors with NaN or infinite elements: not measured */
	uint64_t elements;
	struct tsr_granularity_row row[TSR_GRANULARITY_COUNT];
	/* What is enough for all tensors: of the format with the smaller error, the coarsest granularity. */
	unsigned enough;
};

/* Whether a tensor counts in the figures. */
bool tsr_granularity_counts(const struct tsr_granularity_tensor *t);

/* False if out of memory. */
bool tsr_granularity_figures_of(const struct tsr_granularities *g,
				struct tsr_granularity_figures *ret);

/* Of the same format: one scale per tensor, and 1x16, COAT's granularity, by which others are judged. */
unsigned tsr_granularity_whole(unsigned index);
unsigned tsr_granularity_reference(unsigned index);

#endif
