/* SPDX-License-Identifier: Apache-2.0 */
/* Replaying optimizer steps from recorded gradients. */
#ifndef TERSOR_REPLAY_H
#define TERSOR_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/checkpoint.h"
#include "tersor/learn.h"
#include "tersor/names.h"
#include "tersor/optimizer.h"
#include "tersor/run.h"
#include "tersor/status.h"

/* --- What is reported --------------------------------------------------------------------------- */

/*
 * Figures of one step, of one tensor or of all.  Each compares the replayed state with a replay in
 * FP32 of the same gradients, unless it says otherwise.  NMSE(x, y) = sum (x - y)^2 / sum x^2 with
 * x of the FP32 replay.
 */
enum tsr_figure_name {
	TSR_FIGURE_WEIGHT_ULP, /* largest distance of weights in ULP of FP32 */
	TSR_FIGURE_WEIGHT_NMSE,
	TSR_FIGURE_WEIGHT_COSINE, /* gates are on 1 - cosine */
	TSR_FIGURE_MOMENTUM_NMSE,
	TSR_FIGURE_VARIANCE_NMSE,
	TSR_FIGURE_MOMENTUM_QUANT, /* NMSE of this step's encoding alone: before it and decoded */
	TSR_FIGURE_VARIANCE_QUANT,
	TSR_FIGURE_UPDATE_NMSE, /* of what the step adds to the weights, before they are stored */
	TSR_FIGURE_UPDATE_QUANT, /* NMSE of what storing them made of it */
	TSR_FIGURE_UPDATE_NORM, /* Euclidean norm of what the step added to the replayed weights */
	TSR_FIGURE_STALLED, /* weights that the update should have changed and did not */
	TSR_FIGURE_UNDERFLOW, /* groups of momentum and variance with a scale stored as 0 */
	TSR_FIGURE_VARIANCE_LOST, /* variances that are not 0 and were stored as 0 by this step */
	TSR_FIGURE_COUNT
};

/* "weight-ulp", "weight-nmse", ...: in reports and gates. */
TSR_API const char *tsr_figure_name(enum tsr_figure_name name);
TSR_API bool tsr_figure_find(const char *name, enum tsr_figure_name *name_ret);

/*
 * Values of all figures.  NaN: the optimizer has no such state.  Infinity: something is not finite,
 * or the FP32 replay has only zeros where the replay has not.
 */
struct tsr_replay_figures {
	double value[TSR_FIGURE_COUNT];
};

/* What a gate limits: the value, or 1 - cosine; larger is worse.  NaN as in the figures. */
TSR_API double tsr_figure_error(const struct tsr_replay_figures *f, enum tsr_figure_name name);

/* One step of the replay. */
struct tsr_replay_step {
	uint64_t step;
	const double *lr; /* per group */
	bool skipped; /* its gradients were not finite */
	size_t nmissing; /* parameters without a gradient, which were not stepped */
	/* Only with compare, and not of a skipped step: */
	struct tsr_replay_figures total; /* over all parameters */
	struct tsr_replay_figures *tensors; /* per parameter; NULL without compare */
};

/* An lr that is too small to move the largest weights of a tensor (FlashOptim's check_numerics). */
struct tsr_numerics_warning {
	uint64_t step;
	size_t param;
	double largest; /* magnitude of the largest weight */
	double lr;
};

/* A parameter that was not stepped at some steps, as they have no gradient for it. */
struct tsr_replay_missing {
	const char *name; /* of its weight in the checkpoint */
	uint64_t first; /* the number of the first such step */
	size_t nsteps; /* how many there are */
};

/* --- Replaying ------------------------------------------------------------------------------------ */

struct tsr_gate {
	enum tsr_figure_name figure;
	double limit; /* of every tensor at every step */
};

enum { TSR_REPLAY_CPU = 0, TSR_REPLAY_AUTO = -1 };

enum tsr_on_nonfinite { TSR_NONFINITE_FAIL, TSR_NONFINITE_SKIP };
enum tsr_on_missing { TSR_MISSING_SKIP, TSR_MISSING_FAIL };

/**
 * struct tsr_replay_options - How to replay
 * @optimizer: TSR_OPTIMIZER_COUNT: the recording's
 * @order:     whose order of operations; the optimizer must be one of its program's.  That of the recording,
 *             if it says one, is used instead of TSR_ORDER_TORCH_CPU unless @order_given
 * @order_given: @order is as meant.  Otherwise a checkpoint that has f16 scales, and keeps them,
 *             is refused, since FlashOptim may have made it
 * @hyper:     hyperparameters that override the recording's, in every group
 * @schedule:  file of learning rates (tsr_schedule_load()); NULL: the recording's
 * @coding:    how to store the state, per slot: codec "f32" for FP32; codec NULL: as in the checkpoint
 * @has_count, @count: how many steps the state has seen.  Otherwise the checkpoint says so, or the
 *             step before the first is assumed; 0 without a state
 * @first_step, @last_step: steps to replay; 0: from the first, to the last recorded
 * @zero_state: start from zero momentum and variance, and count steps from 1
 * @compare:   also replay in FP32, and report how far the state is from that
 * @check_numerics: warn of learning rates that are too small to move the largest weights
 * @on_nonfinite: what to do with a step that has NaN or infinity in a gradient: fail, or skip it
 * @on_missing: what to do with a parameter that has no gradient at a step: not step it, as in PyTorch,
 *             or fail
 * @gates:     @ngates limits on figures; only with @compare
 * @learn:     how blocks and the codebook of gefen8 and blockmean are learned where the checkpoint has
 *             none, from the first step of the recording; NULL for tsr_learn_defaults()
 * @rules:     @nrules rules that settle the kind of tensors
 * @open:      how to read the checkpoint; NULL for tsr_open_defaults()
 * @container: of an FP32 output; TSR_CONTAINER_COUNT: that of the checkpoint
 * @decode:    write FP32 even if the state is packed, which is otherwise written as a packed file
 * @to_flashoptim: write a compressed state dict of FlashOptim
 * @max_shard_nbytes, @force, @dry_run: as for packing
 * @reports:   @nreports paths that the caller will write afterwards; they may not be inputs, as @out
 *             may not be one
 * @gpus:      indices of @ngpus GPUs to step on, each once, not with @check_numerics or @each_step: each
 *             holds the state of the tiles that are dealt to it.  @ngpus may be TSR_REPLAY_CPU; or
 *             TSR_REPLAY_AUTO: one GPU if one has room for the state, the gradients are large enough
 *             to be worth it and nothing is asked for that only the CPU does
 * @keep_scales: leave e8m8 scales, of @coding or of the checkpoint, as they are.  Otherwise a momentum
 *             or variance that changes too little in a step for them gets f32 scales (docs/replay.md)
 * @each_step: called with @ctx after every step that was not skipped, with its number, the state as a
 *             checkpoint whose tensors are in memory, to be read meanwhile, and the hyperparameters of
 *             @ngroups groups; a failure ends the replay.
 *             The state must be FP32 and in the checkpoint from the start, which is not packed; on the
 *             CPU, and without an output
 * @state_dir: directory of a nameless file that has the state, for one that does not fit in memory: all of it
 *             is reserved at the start, and each tile is in memory for one window of steps at a time.  On the
 *             CPU.  NULL: memory has it
 * @signatures: path of a file of signatures to write of the replayed run (docs/replay.md, "Signatures");
 *             with @force one is replaced.  The state must be FP32; on the CPU.  NULL: none
 */
struct tsr_replay_options {
	size_t size; /* of this struct: set by tsr_replay_defaults() */
	enum tsr_optimizer optimizer;
	enum tsr_order order;
	bool order_given;
	struct tsr_hyper hyper;
	const char *schedule;
	struct tsr_coding coding[TSR_SLOTS];
	uint64_t first_step, last_step;
	bool has_count;
	uint64_t count;
	bool zero_state;
	bool compare;
	bool check_numerics;
	enum tsr_on_nonfinite on_nonfinite;
	enum tsr_on_missing on_missing;
	const struct tsr_gate *gates;
	unsigned ngates;
	const struct tsr_learn_options *learn;
	const struct tsr_name_rule *rules;
	unsigned nrules;
	const struct tsr_open_options *open;
	enum tsr_container container;
	bool decode;
	bool to_flashoptim;
	uint64_t max_shard_nbytes;
	bool force;
	bool dry_run;
	const char *const *reports;
	unsigned nreports;
	const unsigned *gpus;
	int ngpus;
	bool keep_scales;
	enum tsr_status (*each_step)(void *ctx, struct tsr_checkpoint *state, uint64_t step,
				     const struct tsr_hyper *hyper, size_t ngroups,
				     struct tsr_err *err);
	void *ctx;
	const char *state_dir;
	const char *signatures;
};

/* The state in the form that the checkpoint has, everything else as recorded; on the CPU. */
TSR_API struct tsr_replay_options tsr_replay_defaults(void);

/* The outcome of tsr_replay(). */
struct tsr_replay;

/**
 * tsr_replay() - Step a checkpoint with recorded gradients
 * @paths:     @npaths inputs of one checkpoint, packed or not
 * @recording: path of the recording
 * @out:       path of the file to write; NULL: none
 * @options:   NULL for tsr_replay_defaults()
 * @run:       threads and progress; NULL: the calling thread only
 * @ret:       out: to be freed with tsr_replay_free(); set on TSR_OK, TSR_E_BOUND (a gate failed;
 *             nothing is written) and TSR_E_DURABILITY
 *
 * Momenta and variances that are already stored as wanted are used as they are; all others are
 * decoded and encoded again.  The bits of the result depend on inputs and options only.  The state is
 * held in memory, twice with @compare; gradients are read a few steps at a time.
 *
 * A state with values that are not finite after the last step is not written: TSR_E_UNSUPPORTED.
 *
 * Return: TSR_OK; TSR_E_BOUND; TSR_E_FORMAT for a gradient that is unknown, missing (if @options say
 * so), of a wrong shape or not finite, with the step and the tensor in the message; TSR_E_USAGE for
 * options that contradict each other or the inputs; or whatever reading and writing return.
 */
TSR_API enum tsr_status tsr_replay(const char *const *paths, unsigned npaths, const char *recording,
				   const char *out, const struct tsr_replay_options *options,
				   const struct tsr_run *run, struct tsr_replay **ret,
				   struct tsr_err *err);
TSR_API void tsr_replay_free(struct tsr_replay *r);

/*
 * How to store the state of every parameter, per slot, as @coding of the options; what it is called; and
 * hyperparameters that override those of the options.
 */
struct tsr_replay_form {
	const char *name;
	struct tsr_coding coding[TSR_SLOTS];
	struct tsr_hyper hyper; /* all zeros: none */
};

#define TSR_REPLAY_FORMS_MAX 16u

/**
 * tsr_replay_forms() - Compare several forms of the state with FP32 over the same gradients
 * @options: as for tsr_replay(), with @compare; not @coding, @check_numerics and what is of an output
 * @forms:   @n of them, 1 to TSR_REPLAY_FORMS_MAX
 * @ret:     out: @n results in their order, each to be freed with tsr_replay_free(); set as by tsr_replay()
 *
 * With hyperparameters in a form, on the CPU: its replay in FP32, which it is compared with, is that of the
 * first form's hyperparameters all the same.
 *
 * Each result is what tsr_replay() returns for its form, but each gradient is read once.  Figures are sums
 * by tile, whose size suits the groups of all forms: last places may differ from those of one form.  All
 * states are in memory at once, each twice.
 *
 * Return: as tsr_replay().
 */
TSR_API enum tsr_status tsr_replay_forms(const char *const *paths, unsigned npaths,
					 const char *recording,
					 const struct tsr_replay_options *options,
					 const struct tsr_replay_form *forms, unsigned n,
					 const struct tsr_run *run, struct tsr_replay *ret[],
					 struct tsr_err *err);

/* The checkpoint before the first step.  Borrowed. */
TSR_API const struct tsr_checkpoint *tsr_replay_source(const struct tsr_replay *r);

/* Names of the weights that were stepped, in the checkpoint's order; NULL past the end. */
TSR_API size_t tsr_replay_nparams(const struct tsr_replay *r);
TSR_API const char *tsr_replay_param(const struct tsr_replay *r, size_t index);

/* The steps, with their figures if these were asked for; NULL past the end. */
TSR_API size_t tsr_replay_nsteps(const struct tsr_replay *r);
TSR_API const struct tsr_replay_step *tsr_replay_step(const struct tsr_replay *r, size_t index);

/* Warnings of @check_numerics, the first per parameter; NULL past the end. */
TSR_API size_t tsr_replay_nwarnings(const struct tsr_replay *r);
TSR_API const struct tsr_numerics_warning *tsr_replay_warning(const struct tsr_replay *r,
							      size_t index);

/* Parameters that some step has no gradient for; NULL past the end. */
TSR_API size_t tsr_replay_nmissing(const struct tsr_replay *r);
TSR_API const struct tsr_replay_missing *tsr_replay_missing(const struct tsr_replay *r,
							    size_t index);

/* The first gate that failed, at which step and parameter; NULL if none did. */
TSR_API const struct tsr_gate *tsr_replay_failed_gate(const struct tsr_replay *r, size_t *step_ret,
						      size_t *param_ret);

/* How many GPUs it ran on, and their indices, which live as long as it; 0: on the CPU. */
TSR_API unsigned tsr_replay_gpus(const struct tsr_replay *r, const unsigned **indices_ret);

struct tsr_finding {
	enum tsr_finding_level level;
	char text[768]; /* a sentence or two, safe to print */
};

#define TSR_FINDINGS_MAX 8

struct tsr_findings {
	unsigned n;
	struct tsr_finding item[TSR_FINDINGS_MAX];
};

/*
 * What the figures of a compared replay say, in words, the gravest first: whether it diverged, and why.
 * docs/replay.md, "Figures of a report", has the thresholds.
 */
TSR_API void tsr_replay_find(const struct tsr_replay *r, struct tsr_findings *ret);

#endif
