/* SPDX-License-Identifier: Apache-2.0 */
/* What decoded tensors lost: values that became zero, signs of zeros, and updates that changed. */
#ifndef TSR_COMPARE_LOST_H
#define TSR_COMPARE_LOST_H

#include "tersor/compare.h"

struct tsr_lost {
	uint64_t weights, momenta, variances, others; /* nonzero values that come back 0 */
	uint64_t exposed; /* those variances whose momentum does not */
	uint64_t signs; /* -0 that comes back +0 */
	uint64_t nupdates; /* momenta that were measured with their variances */
	uint64_t alone; /* variances that were changed, with no momentum to measure them with */
	uint64_t unlike; /* variances whose tiles are not those of their momentum: not measured */
	uint64_t undefined; /* updates that were not finite before */
	float max_before, max_after, eps;
	bool eps_known; /* the checkpoint says it */
	bool eps_differs; /* of several files: each has its own */
	uint64_t nbad; /* of nupdates, those with an NMSE that is bad: tsr_update_level() */
	double nmse; /* the largest of an update */
	char worst[200]; /* the variance that has it */
	double lr; /* the least of those that steps were measured at; 0: none was */
	double step; /* the largest tsr_weight_step() */
	char step_worst[200]; /* the weight that has it */
};

/* Of what was packed, or compared with its original. */
struct tsr_lost tsr_lost_in_packing(const struct tsr_packing *p);
struct tsr_lost tsr_lost_in_verification(const struct tsr_verification *v);

/* Add those of another file. */
void tsr_lost_merge(struct tsr_lost *into, const struct tsr_lost *from);

#endif
