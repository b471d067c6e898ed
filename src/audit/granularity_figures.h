/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit floats by granularity over all tensors, and what follows from it. */
#ifndef TSR_GRANULARITY_FIGURES_H
#define TSR_GRANULARITY_FIGURES_H

#include "tersor/granularity.h"

/* One format at one granularity; nearest rank. */
struct tsr_granularity_row {
	double median, worst; /* NMSE of a tensor */
	const struct tsr_granularity_tensor *worst_tensor;
	uint64_t zeroed, nbytes;
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
	struct tsr_granularity_row row[TSR_FP8_COUNT][TSR_GRANULARITY_COUNT];
	/* What is enough for all tensors: the format with the smaller error, and the coarsest granularity. */
	enum tsr_fp8 format;
	unsigned enough;
};

/* Whether a tensor counts in the figures. */
bool tsr_granularity_counts(const struct tsr_granularity_tensor *t);

/* False if out of memory. */
bool tsr_granularity_figures_of(const struct tsr_granularities *g,
				struct tsr_granularity_figures *ret);

/* Bytes per element. */
double tsr_granularity_cost(const struct tsr_granularity_figures *f, enum tsr_fp8 format,
			    unsigned granularity);

/* COAT's own granularity, 1x16, by which others are judged. */
unsigned tsr_granularity_reference(void);

#endif
