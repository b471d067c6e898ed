/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a checkpoint that are copies of others: masters, and averages such as an EMA. */
#ifndef TSR_NAMES_COPIES_H
#define TSR_NAMES_COPIES_H

#include "tersor/checkpoint.h"

#define TSR_COPIES_MAX 8
#define TSR_COPIES_MODELS_MAX 256

/* Those of one checkpoint or of several; docs/reading.md says what counts as a copy. */
struct tsr_copies {
	uint64_t nelements;
	/* Of several checkpoints: elements of models, and of masters and lists of vectors without a model. */
	uint64_t nmodel, nlisted;
	/* Hashes of the models in several checkpoints: of two with the same parameters one is a copy. */
	uint64_t models[TSR_COPIES_MODELS_MAX];
	unsigned nmodels;
	struct tsr_copied {
		char name[64]; /* of where they are, such as "ema.*" */
		uint64_t nelements;
	} places[TSR_COPIES_MAX];
	unsigned nplaces;
};

/* Add the copies among the tensors of a checkpoint. */
enum tsr_status tsr_copies_add(struct tsr_copies *s, const struct tsr_checkpoint *c,
			       struct tsr_err *err);

/*
 * The same for what the files of a directory have together, after the last of them: flat partitions of
 * an optimizer, or its masters, that hold as many elements as the models, and at most 1% of padding.
 */
void tsr_copies_add_flat(struct tsr_copies *s);

#endif
