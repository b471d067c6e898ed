/* SPDX-License-Identifier: Apache-2.0 */
/* What codecs are chosen for: a tensor, or a momentum with its variance, and the candidates it has. */
#ifndef TSR_PACK_CHOICE_UNITS_H
#define TSR_PACK_CHOICE_UNITS_H

#include "pack/choice/choice.h"
#include "ckpt/checkpoint_model.h"
#include "pack/open_checkpoint.h"

/* A candidate for one unit. */
struct tsr_option {
	unsigned candidate; /* its index in the list */
	uint64_t nbytes; /* of all planes of the unit */
	double error; /* once it was tried; infinite also if it cannot hold the unit */
};

/* One or two tensors that a choice is made for. */
struct tsr_choice_unit {
	size_t tensor[2]; /* of two the momentum is the first */
	unsigned n;
	bool by_step; /* a weight that is chosen for by its step */
	size_t variance; /* of it: the tensor that its updates are measured on */
	enum tsr_raw_reason reason[2]; /* why the codec tried last cannot hold it */
	bool nonfinite[2]; /* no codec can: this tensor stays raw, whatever the other gets */
	struct tsr_option *options; /* by bytes, all fewer than those of raw tensors */
	unsigned noptions, ntried;
	unsigned chosen; /* noptions: all stay raw */
};

struct tsr_choice_units {
	struct tsr_choice_unit *list;
	size_t n;
	struct tsr_option *options; /* of all */
};

/*
 * The units of @c, whose tensors have their kinds, with their options.  @results says which tensors are
 * too small.  @by_step: of weights, only those with a variance, by their step.
 */
enum tsr_status tsr_choice_units_find(const struct tsr_checkpoint *c,
				      const struct tsr_choice_options *o,
				      const struct tsr_pack_given *given,
				      const struct tsr_packed_tensor *results, bool by_step,
				      struct tsr_choice_units *ret, struct tsr_err *err);

/* What its options have to be within. */
double tsr_choice_unit_bound(const struct tsr_choice_unit *u, double bound);

/* Whether the error is that of the updates of its two tensors; else it is the NMSE of one. */
bool tsr_choice_unit_is_pair(const struct tsr_choice_unit *u);

/* List the options of a unit, none of which is tried. */
void tsr_choice_unit_list(const struct tsr_checkpoint *c, const struct tsr_choice_options *o,
			  struct tsr_choice_unit *u);

/* Give the tensors of a unit the codings of an option, or none past the last one. */
void tsr_choice_unit_give(const struct tsr_checkpoint *c, const struct tsr_choice_options *o,
			  const struct tsr_choice_unit *u, unsigned option);

void tsr_choice_units_free(struct tsr_choice_units *units);

/* --- Trials (choice_trials.c) ----------------------------------------------------------------------- */

/*
 * Try the options of all units, each until one has an error of at most @bound, or with a negative @bound
 * all of them.  On success each unit's first ntried options have their errors.
 */
enum tsr_status tsr_choice_try(const struct tsr_choosing *choosing, struct tsr_choice_units *units,
			       double bound, struct tsr_err *err);

#endif
