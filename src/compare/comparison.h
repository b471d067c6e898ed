/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_COMPARE_COMPARISON_H
#define TSR_COMPARE_COMPARISON_H

/* The outcomes of verify and diff; users of the library have the functions of tersor/compare.h. */

#include "base/scope.h"
#include "compare/besides.h"
#include "pack/outcome/moments.h"
#include "tersor/compare.h"

/* The outcome of tsr_verify(). */
struct tsr_verification {
	struct tsr_checkpoint *checked;
	struct tsr_checkpoint *original; /* NULL without --against */
	struct tsr_verified_tensor *tensors; /* one per tensor of @checked */
	uint64_t nmissing; /* tensors of the original that @checked lacks */
	const char *first_missing;
	uint64_t nfaults; /* tensors with a fault, and missing ones */
	uint64_t nabsent; /* tensors that the original lacks */
	uint64_t nunlike; /* tensors that both have, and that cannot have been packed from it */
	float eps; /* that updates were measured with */
	bool eps_known; /* the original says it */
	double lr; /* of the original's optimizer; 0: not known */
	struct tsr_moments_found moments; /* of the original if there is one */
	struct tsr_besides besides; /* what differs from the original */
	uint64_t nchecksums; /* records of an archive whose CRC-32 was checked */
};

/* The outcome of tsr_diff(). */
struct tsr_comparison {
	struct tsr_checkpoint *a, *b;
	struct tsr_diff_tensor *tensors; /* in the order of @a, then those only in @b */
	size_t ntensors;
	uint64_t ndiffering; /* tensors that differ in any way */
	uint64_t nexceeding; /* those that exceed the tolerances */
	struct tsr_besides besides;
	struct tsr_moments_found moments; /* with steps */
	uint64_t nnoted; /* those that one side lacks without that being a difference */
};

TSR_OWNED_BY(tsr_comparison_free, struct tsr_comparison)

TSR_OWNED_BY(tsr_verification_free, struct tsr_verification)

#endif
