/* SPDX-License-Identifier: Apache-2.0 */
/* Learning how to store momenta and variances as Gefen does: blocks and a codebook, from the data. */
#ifndef TERSOR_LEARN_H
#define TERSOR_LEARN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/checkpoint.h"
#include "tersor/run.h"
#include "tersor/status.h"

/* How the length of a tensor's blocks is chosen among the divisors of its elements. */
enum tsr_partition_rule {
	TSR_PARTITION_ADJACENT, /* where blocks next to each other differ most: Gefen's program */
	TSR_PARTITION_VARIANCE, /* where the deviation within blocks drops most: its paper, Algorithm 2 */
};

#define TSR_CODEBOOK_ENTRIES 256

/* Bins of the histogram that a codebook is learned from: equal parts of -1 to 1. */
#define TSR_LEARNED_BINS 4096

/**
 * struct tsr_learn_options - What to learn from
 * @partition: how blocks are chosen
 * @gradients: the tensors are the gradients of a first step, named as the parameters; otherwise momenta
 *           and variances, whose kinds are known (tsr_names_assign())
 * @peer:    leave the codebook as Gefen's program has it, in which no entry is 0
 * @few:     accept less than TSR_CODEBOOK_ENTRIES nonempty bins
 */
struct tsr_learn_options {
	size_t size; /* of this struct: set by tsr_learn_defaults() */
	enum tsr_partition_rule partition;
	bool gradients;
	bool peer;
	bool few;
};

/* By Gefen's program, from momenta and variances; zeros stay zeros. */
TSR_API struct tsr_learn_options tsr_learn_defaults(void);

/* A length that blocks may have, and what the rule makes of it. */
struct tsr_learned_candidate {
	uint64_t length;
	double score; /* or by the paper the deviation within blocks */
};

/* What was learned of the states of one parameter. */
struct tsr_learned_tensor {
	const char *name; /* of the parameter; of a state that belongs to none, its own */
	uint64_t numel;
	uint32_t period; /* elements that share a variance; 1: none do */
	uint32_t block; /* elements of a momentum that share a scale */
	bool counted; /* whether it is in the histogram: not if all are variances, or some not finite */
	size_t ncandidates;
	const struct tsr_learned_candidate *candidates; /* ascending; those the rule looks at */
};

/**
 * struct tsr_learned - What tsr_learn() found; read-only
 * @codebook: ascending; from -1 to 1.  A value is the entry times the scale of its block
 * @nmse:     of rounding all counted values to the codebook, by the centres of their bins
 * @count:    values, divided by the largest magnitude of their block, in each bin
 * @nonempty: bins with values
 * @tensors:  @ntensors of them, sorted by name
 */
struct tsr_learned {
	float codebook[TSR_CODEBOOK_ENTRIES];
	double nmse;
	uint64_t count[TSR_LEARNED_BINS];
	unsigned nonempty;
	size_t ntensors;
	const struct tsr_learned_tensor *tensors;
};

/**
 * tsr_learn() - Learn the blocks of each tensor, and the one codebook of all
 * @c:       borrowed; read twice
 * @options: NULL for tsr_learn_defaults()
 * @run:     threads and progress; NULL: the calling thread only
 * @ret:     out: to be freed with tsr_learned_free(); untouched on failure
 *
 * Blocks are found in squared gradients; without gradients in the variance, which is a mean of these, or
 * for a momentum without one in its square.  Gefen (Algorithms 2 and 3, and its program).  The result
 * depends on neither threads nor the processor.  Thread-safe.
 *
 * Return: TSR_OK; TSR_E_UNSUPPORTED if there is nothing to learn from, a gradient is not finite, or
 * too few bins are nonempty; whatever reading returns.
 */
TSR_API enum tsr_status tsr_learn(const struct tsr_checkpoint *c,
				  const struct tsr_learn_options *options,
				  const struct tsr_run *run, struct tsr_learned **ret,
				  struct tsr_err *err);
TSR_API void tsr_learned_free(struct tsr_learned *l);

/* What was learned of a parameter, or NULL. */
TSR_API const struct tsr_learned_tensor *tsr_learned_find(const struct tsr_learned *l,
							  const char *name);

#endif
