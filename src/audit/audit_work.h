/* SPDX-License-Identifier: Apache-2.0 */
/* An audit in progress. */
#ifndef TSR_AUDIT_AUDIT_WORK_H
#define TSR_AUDIT_AUDIT_WORK_H

#include "audit/audit_trial.h"
#include "base/arena.h"
#include "tersor/audit.h"

/* Kinds as indices of arrays. */
enum { TSR_AUDIT_WEIGHT, TSR_AUDIT_MOMENTUM, TSR_AUDIT_VARIANCE, TSR_AUDIT_KINDS };

/* What the figures of all tensors may take in memory. */
#define TSR_AUDIT_ARENA_MAX (UINT64_C(256) << 20)

struct tsr_auditing {
	struct tsr_audit pub; /* what callers see; must be first */
	struct tsr_arena *arena; /* of all figures */
	struct tsr_checkpoint *c;
	bool borrowed; /* @c is the caller's */
	struct tsr_audit_options options;
	struct tsr_learned *own; /* what was learned here; NULL: nothing */
	struct tsr_audit_list *lists[TSR_AUDIT_KINDS]; /* of pub */
	unsigned beside; /* the variance coding that ratios are measured with; their number: none */
	struct tsr_audit_tensor *tensors;
	struct tsr_audit_pair *pairs;
	struct tsr_tensor
		*wanted; /* per tensor of @c, for the walk: `row` of its coding cuts its tiles */
	size_t *place; /* per tensor of @c: which of @tensors it is, from 1 on; 0: none */
	size_t *pair_of; /* per one of @tensors: which of @pairs it is in, from 1 on; 0: none */
	/* Of the tensors that are being committed, by kind and coding; and of their pair: */
	struct tsr_trial_sums *sums[TSR_AUDIT_KINDS];
	struct tsr_update_measure *updates; /* as tsr_audit_pair has them */
	bool integers[TSR_AUDIT_KINDS];
	double bound; /* tsr_adam_bound() of the betas */
	/* Figures over all tensors, by kind and coding, and by pair of codings, the best first. */
	struct tsr_audit_column *columns[TSR_AUDIT_KINDS];
	struct tsr_audit_cell *cells;
	size_t ncells;
};

/* The index of a kind other than TSR_KIND_OTHER. */
static inline unsigned tsr_audit_kind(enum tsr_kind kind)
{
	return kind == TSR_KIND_WEIGHT	   ? TSR_AUDIT_WEIGHT
	       : kind == TSR_KIND_MOMENTUM ? TSR_AUDIT_MOMENTUM
					   : TSR_AUDIT_VARIANCE;
}

/* How many entries the updates of a pair are: each coding and the elements as they are. */
static inline size_t tsr_audit_nupdates(const struct tsr_auditing *a)
{
	return (size_t)(a->pub.momenta.n + 1) * (a->pub.variances.n + 1);
}

/*
 * Coding @i of its kind's list for a tensor; false if it cannot be tried on that: for its type, its size, a
 * variance that is missing, or groups that no tile holds.
 */
bool tsr_audit_coding(const struct tsr_auditing *a, const struct tsr_tensor *t, unsigned i,
		      struct tsr_coding *ret);

/* Choose codings, tensors, pairs and tiles; what cannot be learned is a note. */
enum tsr_status tsr_audit_plan(struct tsr_auditing *a, const struct tsr_run *run,
			       struct tsr_err *err);

/* TSR_E_NOMEM or TSR_E_LIMIT for the arena. */
enum tsr_status tsr_audit_no_room(const struct tsr_auditing *a, struct tsr_err *err);

/* Fill in the figures over all tensors, from those of each. */
enum tsr_status tsr_audit_sum_up(struct tsr_auditing *a, struct tsr_err *err);

/* Read all tensors once and fill in their figures. */
enum tsr_status tsr_audit_measure(struct tsr_auditing *a, const struct tsr_run *run,
				  struct tsr_err *err);

/* Of a pair: update @i of its list; and what is known of the update as it is. */
void tsr_audit_put_update(struct tsr_audit_pair *p, size_t i, const struct tsr_update_measure *u);
void tsr_audit_put_before(struct tsr_audit_pair *p, const struct tsr_update_measure *as_it_is);

/* --- Momenta of Muon, judged by the update that is made orthogonal from them ------------------ */

/*
 * Fill in the updates of pairs that are a momentum of Muon and itself: of as many matrices as take some 10^12
 * multiplications, spread over all of them.  The others are dropped, which a note says.
 */
enum tsr_status tsr_audit_muon(struct tsr_auditing *a, const struct tsr_run *run,
			       struct tsr_err *err);

#endif
