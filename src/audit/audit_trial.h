/* SPDX-License-Identifier: Apache-2.0 */
/* One coding tried on a few elements: what comes back, and what its groups are like. */
#ifndef TSR_AUDIT_AUDIT_TRIAL_H
#define TSR_AUDIT_AUDIT_TRIAL_H

#include <stdint.h>

#include "tersor/codec.h"
#include "tersor/measure.h"

/* What was seen of a tensor in one coding.  Starts from all zeros; sums do not depend on their order. */
struct tsr_trial_sums {
	struct tsr_measure measure;
	struct tsr_encode_report report;
	uint64_t groups, stuck; /* as in struct tsr_audit_trial */
	uint64_t range_sum; /* of ranges, in parts of 2^-23 octaves */
	uint64_t nranges;
	uint32_t range_max;
	uint32_t measured; /* whether it was */
};

/* Add what @from has seen, after what @into has. */
void tsr_trial_sums_merge(struct tsr_trial_sums *into, const struct tsr_trial_sums *from);

/* Memory for elements on their way; arrays have room for all of them. */
struct tsr_trial_memory {
	void *plane[TSR_PLANES_MAX], *again[TSR_PLANES_MAX];
	float *x;
};

/* Encode @n elements into @memory and decode them; they begin at a multiple of tsr_coding_align(). */
void tsr_trial_code(const struct tsr_coding *coding, const float *x, size_t n,
		    struct tsr_trial_memory *memory, float *decoded,
		    struct tsr_encode_report *report);

/*
 * After that: count groups, and those that keep their planes when what was @decoded is multiplied by
 * @factor and encoded again.
 */
void tsr_trial_stuck(const struct tsr_coding *coding, const float *decoded, size_t n, float factor,
		     struct tsr_trial_memory *memory, struct tsr_trial_sums *sums);

/* Measure how far the nonzero magnitudes of each group range. */
void tsr_trial_range(const struct tsr_coding *coding, const float *x, size_t n,
		     struct tsr_trial_sums *sums);

#endif
