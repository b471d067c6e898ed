/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing the codecs of tensors by the errors that they turn out to have. */
#ifndef TSR_PACK_CHOICE_H
#define TSR_PACK_CHOICE_H

#include "pack/encode_tiles.h"
#include "pack/open_checkpoint.h"

/*
 * What a choice works on.
 * @choice:   how to choose
 * @encoding: its wanted tensors have the codings of the options and get those that are chosen
 * @choices:  per tensor: gets how
 * @lr, @by_step: whether weights are chosen for by their step at this learning rate
 * @size:     the bytes of all files with the codings as they are now
 */
struct tsr_choosing {
	const struct tsr_choice_options *choice;
	const struct tsr_pack_given *given;
	struct tsr_encoding *encoding;
	struct tsr_choice *choices;
	double lr;
	bool by_step;
	const struct tsr_run *run;
	const char *what; /* the file that a message of cancellation names */
	enum tsr_status (*size)(void *ctx, uint64_t *nbytes_ret);
	void *ctx;
};

/* The options that a caller gave, checked. */
enum tsr_status tsr_choice_take(struct tsr_choice_options *o,
				const struct tsr_choice_options *given, struct tsr_err *err);

/* Add candidates for weights, which are then chosen for by their step; false if some are there already. */
bool tsr_choice_add_weights(struct tsr_choice_options *o);

/*
 * Choose.  @bound_ret: what the choice kept to.  TSR_E_BOUND, with the smallest codings given, if no bound
 * fits max_nbytes.
 */
enum tsr_status tsr_choose(const struct tsr_choosing *choosing, double *bound_ret,
			   struct tsr_err *err);

#endif
