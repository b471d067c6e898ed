/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the moments of a checkpoint can be Adam's: the betas that it says, and what was found. */
#ifndef TSR_PACK_OUTCOME_MOMENTS_H
#define TSR_PACK_OUTCOME_MOMENTS_H

#include "ckpt/checkpoint_model.h"
#include "step/adam_bound.h"

/* What was checked, and found; for reports. */
struct tsr_moments_found {
	bool betas_known;
	double beta1, beta2;
	double bound; /* tsr_adam_bound() of these; infinite: not checked but for the sign */
	uint64_t steps; /* of two checkpoints; 0: of one */
	uint64_t nvariances; /* that were checked */
	uint64_t nelements; /* of these */
	struct tsr_breach all; /* the first of all, and how many */
	const struct tsr_tensor *first; /* which has it */
};

/* With these betas, if they are known, or those of a checkpoint; nothing is found yet. */
struct tsr_moments_found tsr_moments_with(bool known, const double betas[2]);
struct tsr_moments_found tsr_moments_begin(const struct tsr_checkpoint *c);

/*
 * Whether a momentum and its variance, of @c, are checked: they are as the optimizer left them, in FP32, and
 * the state of their parameter has no matrices besides, with which SOAP and its like turn them.
 */
bool tsr_moments_checked(const struct tsr_checkpoint *c, const struct tsr_tensor *m,
			 const struct tsr_tensor *v);

/* Add a variance that was checked. */
void tsr_moments_add(struct tsr_moments_found *f, const struct tsr_tensor *v,
		     const struct tsr_breach *breach);

/*
 * Whether what was found is a fault.  Not if so many elements are outside that the optimizer is another, or
 * was given other betas: no flipped bits do that.
 */
bool tsr_moments_faulty(const struct tsr_moments_found *f);

/* What is wrong, in words, and with which element. */
void tsr_moments_text(const struct tsr_moments_found *f, char *text, size_t room);

/* A warning of @c, or with @strict TSR_E_BOUND, of what is faulty; and a remark of what was not checked. */
enum tsr_status tsr_moments_note(const struct tsr_moments_found *f, struct tsr_checkpoint *c,
				 bool strict, struct tsr_err *err);

#endif
