/* SPDX-License-Identifier: Apache-2.0 */
/* What decoded tensors lost: values that became zero, signs of zeros, and updates that changed. */
#ifndef TSR_REPORT_LOSSES_H
#define TSR_REPORT_LOSSES_H

#include "tersor/checkpoint.h"
#include "text/text.h"

struct tsr_losses {
	uint64_t weights, momenta, variances, others; /* nonzero values that come back 0 */
	uint64_t exposed; /* those variances whose momentum does not */
	uint64_t signs; /* -0 that comes back +0 */
	uint64_t nupdates; /* momenta that were measured with their variances */
	uint64_t alone; /* variances that were changed, with no momentum to measure them with */
	uint64_t unlike; /* variances whose tiles are not those of their momentum: not measured */
	uint64_t undefined; /* updates that were not finite before */
	float max_before, max_after, eps;
	bool eps_known; /* the checkpoint says it */
	double nmse; /* the largest of an update */
	char worst[200]; /* the variance that has it */
};

/* Add a tensor; @m: NULL if it is stored as it is; @u: as in struct tsr_packed_tensor. */
void tsr_losses_add(struct tsr_losses *l, const struct tsr_tensor *t, const struct tsr_measure *m,
		    const struct tsr_update_measure *u);

/* Lines of at most 80 columns on what was lost and what was measured; none if there is nothing. */
void tsr_losses_put_text(const struct tsr_losses *l, struct tsr_text *out);

/* The member "losses". */
void tsr_losses_put_json(const struct tsr_losses *l, struct tsr_text *json);

/* The member "update" of a variance that was measured with its momentum; else nothing. */
void tsr_update_put_json(const struct tsr_update_measure *u, struct tsr_text *json);

#endif
