/* SPDX-License-Identifier: Apache-2.0 */
/* Bisecting two runs: the first step and tensor at which they differ (docs/replay.md, section 11). */
#ifndef TERSOR_BISECT_H
#define TERSOR_BISECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/run.h"
#include "tersor/signatures.h"
#include "tersor/status.h"

/* What one of the two runs was read from. */
enum tsr_bisect_source {
	TSR_BISECT_SIGNATURES,
	TSR_BISECT_GRADIENTS, /* a recording without signatures */
	TSR_BISECT_CHECKPOINTS,
};

/* What was first to differ. */
enum tsr_bisect_cause {
	TSR_BISECT_EQUAL,
	TSR_BISECT_RANKS, /* ranks of one run, which must agree */
	TSR_BISECT_LOADED, /* weights or states before the first step */
	TSR_BISECT_HYPERPARAMETERS, /* the same gradients and states in, by other hyperparameters */
	TSR_BISECT_GRADIENT, /* weights and states before it were equal, as far as they are known */
	TSR_BISECT_OPTIMIZER, /* the same gradients, states and hyperparameters in, others out */
	TSR_BISECT_STATE, /* weights or states, of which it is not known what went in */
	TSR_BISECT_TENSORS, /* one run has others, or of other shapes or types; those of both are equal */
};

/* "equal", "ranks", "loaded state", "hyperparameters", "gradient", "optimizer", "state", "tensors". */
TSR_API const char *tsr_bisect_cause_name(enum tsr_bisect_cause cause);

/* Ranks of one run that have different values of a tensor which all of them have. */
struct tsr_bisect_ranks {
	uint64_t step, rank, other; /* @rank is the first of those that differ from @other */
	const char *name, *of; /* NULL: they agree, or there is one only */
};

struct tsr_bisect_side {
	const char *path;
	enum tsr_bisect_source source;
	uint64_t nsteps, first_step, last_step;
	uint64_t nranks, nfiles; /* of the run; of which there are signatures */
	uint64_t torn_nbytes; /* of the last step of a file, which was not written to its end */
	const struct tsr_recording *run; /* NULL: not recorded */
	struct tsr_bisect_ranks ranks;
};

/* Where a tensor is. */
enum tsr_bisect_where {
	TSR_BISECT_BOTH,
	TSR_BISECT_ONLY_A,
	TSR_BISECT_ONLY_B,
	TSR_BISECT_SHAPES, /* in both with other shapes */
	TSR_BISECT_DTYPES, /* or other types: neither is compared */
};

/* Steps that share a column of a heat map. */
#define TSR_BISECT_COLUMNS 64

struct tsr_bisect_tensor {
	const char *name, *of; /* as in struct tsr_signed_tensor */
	uint64_t rank;
	enum tsr_bisect_where where;
	uint64_t ncompared, ndiffering; /* steps */
	uint64_t first_step; /* that differs, if any does */
	struct tsr_signature first[2]; /* of A and B there; absent if one of them has none */
	/* Where both runs have values at that step: how many differ, the first of them, and both values. */
	uint64_t nelements, element;
	double value[2];
	/*
	 * Per column, the largest difference of root mean squares relative to the larger one, at least
	 * 2^-24 if a bit differs; 0: all are equal; negative: nothing was compared.
	 */
	float heat[TSR_BISECT_COLUMNS];
};

/* A hyperparameter, or a fact of the manifest, that differs. */
struct tsr_bisect_hyper {
	const char *name; /* "weight_decay"; "lr" of a step; "order" */
	uint64_t group, step; /* the first step; 0: of all */
	bool text; /* @words, of what is no number */
	double value[2]; /* both runs recorded it */
	char words[2][96];
};

#define TSR_BISECT_HYPERS_MAX 64

/* The outcome of tsr_bisect(). */
struct tsr_bisect {
	struct tsr_bisect_side side[2];
	uint64_t nsteps, first_common, last_common; /* that both have */
	enum tsr_bisect_cause cause;
	uint64_t step; /* at which it shows */
	uint64_t
		before; /* the last step before it that was compared; equal to @step: there is none */
	bool known_before; /* weights and states were compared right before that step, and are equal */
	size_t ntensors;
	struct tsr_bisect_tensor *tensors; /* in the order of A, then those only in B */
	size_t npaired, ndiffering; /* in both; those that differ at any step */
	unsigned nhypers;
	struct tsr_bisect_hyper hyper[TSR_BISECT_HYPERS_MAX]; /* the first that differ */
	/* A replay up to @step by the gradients of run @replayed; -1: there was none. */
	int replayed;
	const struct tsr_checkpoint *from; /* what it began from, with its notes, or NULL */
	uint64_t nreplayed; /* weights and states that differ at @step and that it has */
	uint64_t nright[2]; /* those of them that it has the bits of, in A and in B */
	unsigned ncolumns; /* of heat */
	uint64_t column[TSR_BISECT_COLUMNS]; /* the first step of each */
};

/**
 * struct tsr_bisect_options - How inputs are read
 * @open: files of checkpoints and gradients; NULL for tsr_open_defaults()
 * @from: a checkpoint with states from before the first difference.  If that is the optimizer, or a state
 *        whose step is not known, the gradients that one run recorded are replayed from it up to there,
 *        in FP32 and the order that is recorded: whose results are these?  NULL: none
 */
struct tsr_bisect_options {
	size_t size; /* of this struct: set by tsr_bisect_defaults() */
	const struct tsr_open_options *open;
	const char *from;
};

TSR_API struct tsr_bisect_options tsr_bisect_defaults(void);

/**
 * tsr_bisect() - Find the first step and tensor at which two runs differ
 * @a, @b:   each a file of signatures, a directory of them, a recording, a checkpoint, or a directory of
 *           checkpoints whose names end in the number of their step
 * @options: NULL for tsr_bisect_defaults()
 * @run:     threads and progress; NULL: the calling thread only
 * @ret:     out: to be freed with tsr_bisect_free(); untouched on failure
 *
 * Compares the steps that both have, by the bits of tensors.
 *
 * Return: TSR_OK, whether or not they differ; TSR_E_UNSUPPORTED if they have no step or no tensor in common;
 * or whatever reading returns.
 */
TSR_API enum tsr_status tsr_bisect(const char *a, const char *b,
				   const struct tsr_bisect_options *options,
				   const struct tsr_run *run, struct tsr_bisect **ret,
				   struct tsr_err *err);
TSR_API void tsr_bisect_free(struct tsr_bisect *b);

#endif
