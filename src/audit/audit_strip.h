/* SPDX-License-Identifier: Apache-2.0 */
/* A tile in strips that stay in the cache while all codings are tried on them. */
#ifndef TSR_AUDIT_AUDIT_STRIP_H
#define TSR_AUDIT_AUDIT_STRIP_H

#include "audit/audit_work.h"

/* A tile of one tensor. */
struct tsr_strip_side {
	const struct tsr_tensor *tensor; /* of the checkpoint */
	const float *x; /* its elements */
	uint64_t first; /* the index of the first of them in the tensor */
	struct tsr_trial_sums *sums; /* per coding of its kind: added to */
};

/*
 * Try all codings on @n elements of a tensor, or with @v of a momentum and its variance; then also all pairs,
 * whose @updates, as struct tsr_audit_pair has them, are added to.
 */
enum tsr_status tsr_audit_strips(const struct tsr_auditing *a, const struct tsr_strip_side *s,
				 const struct tsr_strip_side *v, size_t n,
				 struct tsr_update_measure *updates, struct tsr_err *err);

/* The most memory that one call takes. */
uint64_t tsr_audit_strips_nbytes(const struct tsr_auditing *a);

#endif
