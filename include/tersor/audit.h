/* SPDX-License-Identifier: Apache-2.0 */
/* What each codec would do to a checkpoint, measured without writing one. */
#ifndef TERSOR_AUDIT_H
#define TERSOR_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/checkpoint.h"
#include "tersor/codec.h"
#include "tersor/learn.h"
#include "tersor/names.h"
#include "tersor/pack.h"
#include "tersor/run.h"
#include "tersor/status.h"

/* The most codings of all kinds that one audit tries. */
#define TSR_AUDIT_CODINGS_MAX 512u

/* What the moments of an optimizer decay by where nothing says another: PyTorch's. */
#define TSR_AUDIT_BETA1 0.9
#define TSR_AUDIT_BETA2 0.999

/**
 * struct tsr_audit_options - What to audit
 * @codings: @ncodings codings to try, each on tensors of its `kind`; NULL: tsr_audit_codings().  With `group`
 *           0 the groups of each tensor are the blocks that are learned for it (tersor/learn.h)
 * @kinds:   mask of enum tsr_kind of the tensors to audit; 0: all
 * @rules:   @nrules rules that settle the kind of tensors, as in struct tsr_pack_options
 * @min_elements: tensors with fewer elements are not audited, as they are not packed
 * @open:    how to read the inputs; NULL for tsr_open_defaults()
 * @learned: blocks and codebook of learned codecs, such as from gradients; NULL: they are learned from the
 *           momenta and variances, which are then read twice more
 * @state: the momentum's and the variance's coding that the verdict is on, tried beside @codings; NULL: it
 *         looks for the best of those tried
 * @eps, @beta1, @beta2: what updates and stuck groups are measured with; 0: what the checkpoint says
 */
struct tsr_audit_options {
	size_t size; /* of this struct: set by tsr_audit_defaults() */
	const struct tsr_coding *codings;
	unsigned ncodings;
	unsigned kinds;
	const struct tsr_name_rule *rules;
	unsigned nrules;
	uint64_t min_elements;
	const struct tsr_open_options *open;
	const struct tsr_learned *learned;
	const struct tsr_coding *state;
	float eps;
	double beta1, beta2;
};

TSR_API struct tsr_audit_options tsr_audit_defaults(void);

/*
 * The codings that are tried by default: with their default groups and scales all lossy codecs for momenta
 * and variances but packed ones, and for weights those without extra bits or with 8 that are not random;
 * with @all every codec but lossless ones.  @ret: out: room for TSR_AUDIT_CODINGS_MAX.  Returns how many.
 */
TSR_API unsigned tsr_audit_codings(bool all, struct tsr_coding *ret);

/* Codings that are tried on tensors of one kind, in the order in which they were given. */
struct tsr_audit_list {
	unsigned n;
	const struct tsr_coding *codings; /* without `row`, `stream` and, if learned, `group` */
};

/* Why a tensor has no figures, or none to count on.  Append only. */
enum tsr_audit_fault {
	TSR_AUDIT_SOUND,
	TSR_AUDIT_SMALL, /* fewer elements than asked for: not read */
	TSR_AUDIT_NONFINITE, /* NaN or infinite elements: figures mean nothing, no coding takes it */
	TSR_AUDIT_NEGATIVE, /* a variance with negative elements: the same */
	TSR_AUDIT_ZERO, /* all elements are 0: figures are, too */
};

/**
 * struct tsr_audit_trial - One tensor in one coding
 * @measured:  false: it cannot be tried on this tensor, and all else is 0
 * @raw:       why pack would keep the tensor as it is
 * @nbytes:    of its planes
 * @nmse, @max_abs, @mean_rel: tsr_measure_value(); @rms_error: as in struct tsr_measured
 * @zeroed:    nonzero elements that come back as 0
 * @scale_underflow, @scale_overflow: groups whose scale was stored as 0 though not all are 0; as infinite
 * @groups:    groups (elements of codecs without groups) that do not decode to all zeros
 * @stuck:     those of them that keep their planes when what they decode to is multiplied by beta and
 *             encoded again: a state that is encoded after each step would never decay.  For momenta and
 *             variances; of ratios, beta1 / sqrt(beta2)
 * @range_mean, @range_max: octaves between the largest and the smallest nonzero magnitude of a group, over
 *             groups with any; a logarithm of base 2, linear between powers of 2 as bit patterns are
 */
struct tsr_audit_trial {
	bool measured;
	enum tsr_raw_reason raw;
	uint64_t nbytes;
	double nmse;
	double rms_error;
	double mean_rel;
	uint64_t zeroed;
	uint64_t scale_underflow, scale_overflow;
	uint64_t groups, stuck;
	float max_abs;
	float range_mean, range_max;
};

/* A tensor that was audited. */
struct tsr_audit_tensor {
	const struct tsr_tensor *tensor; /* of the checkpoint */
	enum tsr_audit_fault fault;
	uint64_t nfaulty; /* elements that are the fault */
	const struct tsr_audit_trial *trials; /* one per coding of its kind; NULL if it is small */
};

/**
 * struct tsr_audit_update - A momentum and its variance in one pair of codings
 * @measured: false: one of the two cannot be tried, or the pair cannot
 * @nmse, @max_after, @overflow, @exposed: as in struct tsr_update_measure
 */
struct tsr_audit_update {
	double nmse;
	uint64_t exposed;
	uint64_t overflow;
	float max_after;
	bool measured;
};

/*
 * A momentum and the variance that its optimizer divides by.  Of Muon, which has none, both are the momentum,
 * and updates are those that five rounds of Newton and Schulz make of it, in FP32.
 */
struct tsr_audit_pair {
	size_t momentum, variance; /* indices among the tensors of the audit */
	double sum; /* of u^2, in the checkpoint */
	float max_before; /* the largest |u| of the checkpoint */
	uint64_t nonfinite; /* updates that are not finite in the checkpoint: left out */
	struct tsr_breach breach; /* in the checkpoint */
	const struct tsr_audit_update *updates; /* see tsr_audit_update() */
};

/**
 * struct tsr_audit - The outcome of tsr_audit_run(); read-only
 * @source:  the checkpoint, with its tensors' kinds; its notes say what was left out and why
 * @eps:     what updates were measured with; @eps_known: the checkpoint says it
 * @beta1, @beta2: likewise, what @stuck was measured with
 * @weights, @momenta, @variances: what was tried; codings that could not be tried at all are left out
 * @tensors: @ntensors of the kinds asked for that some coding takes, in the order of the checkpoint
 * @pairs:   @npairs of them, in the order of their momenta; sides with a fault other than
 *           TSR_AUDIT_ZERO are in none
 * @nalone:  momenta and variances without a partner
 *
 * Ratios need a variance.  The figures of a momentum in a relative codec are those beside log8 if that is
 * tried, else beside the first variance coding, else beside the variance as it is; without a variance
 * nothing is measured.
 */
struct tsr_audit {
	const struct tsr_checkpoint *source;
	const char *
		name; /* of the report: the path of @source, or what tsr_audit_checkpoint() was told */
	float eps;
	bool eps_known;
	double beta1, beta2;
	bool betas_known;
	struct tsr_audit_list weights, momenta, variances;
	bool asked; /* the verdict is on @momentum and @variance, indices of these lists */
	unsigned momentum, variance;
	size_t ntensors;
	const struct tsr_audit_tensor *tensors;
	size_t npairs;
	const struct tsr_audit_pair *pairs;
	size_t nalone;
	const struct tsr_learned *learned; /* blocks and codebook, if they were needed; borrowed */
	bool unlearned; /* learned codecs were asked for, and could not be learned: a note says why */
};

/**
 * tsr_audit_run() - Try codings on a checkpoint
 * @paths: @npaths inputs, see tsr_checkpoint_open()
 * @options: NULL for tsr_audit_defaults()
 * @run:   threads and progress; NULL: the calling thread only.  Runs on the CPU
 * @ret:   out: to be freed with tsr_audit_free(); untouched on failure
 *
 * Each tile of a tensor is read once and goes through all codings; nothing is written.  Errors are those
 * that tsr_pack() reports, to their last digits unless a tensor has several tiles and groups that no common
 * tile holds.  Figures depend on neither threads nor SIMD level.  FlashOptim, section 4.5 and Figure 4;
 * COAT, Table 1.  Thread-safe.
 *
 * Return: TSR_OK; TSR_E_USAGE for no or too many codings; TSR_E_UNSUPPORTED for a packed file, or if no
 * coding takes any tensor; TSR_E_LIMIT if the figures of all tensors would take more than 256 MiB;
 * TSR_E_CANCELLED; TSR_E_NOMEM; whatever opening, naming and reading return.
 */
TSR_API enum tsr_status tsr_audit_run(const char *const *paths, unsigned npaths,
				      const struct tsr_audit_options *options,
				      const struct tsr_run *run, struct tsr_audit **ret,
				      struct tsr_err *err);

/**
 * tsr_audit_checkpoint() - The same of a checkpoint that is open, such as a state in memory
 * @c:    borrowed, until the audit is freed; its tensors' kinds are known
 * @name: what reports call it; copied
 *
 * @options->rules and @options->open are not used.
 *
 * Return: as tsr_audit_run().
 */
TSR_API enum tsr_status tsr_audit_checkpoint(struct tsr_checkpoint *c, const char *name,
					     const struct tsr_audit_options *options,
					     const struct tsr_run *run, struct tsr_audit **ret,
					     struct tsr_err *err);

/* NULL is allowed. */
TSR_API void tsr_audit_free(struct tsr_audit *a);

/* What was tried on tensors of a kind; NULL for TSR_KIND_OTHER. */
TSR_API const struct tsr_audit_list *tsr_audit_list(const struct tsr_audit *a, enum tsr_kind kind);

/*
 * A pair in the codings @m of the momenta and @v of the variances; the number of codings stands for the
 * elements as they are.  Never NULL for indices up to these numbers.
 */
TSR_API const struct tsr_audit_update *tsr_audit_update(const struct tsr_audit *a, size_t pair,
							unsigned m, unsigned v);

/* Quantiles over tensors that figures are shown by: minimum, 5, 25, 50, 75, 95 percent, maximum. */
#define TSR_AUDIT_QUANTILES 7

/* The percentage of the @i-th: 0, 5, 25, 50, 75, 95, 100. */
TSR_API unsigned tsr_audit_percent(unsigned i);

/*
 * The quantiles of @n values by nearest rank, the value at ceil(p / 100 * n) of them in order; infinity is
 * the largest.  Sorts @values.  All 0 of none.
 */
TSR_API void tsr_audit_quantiles(double *values, size_t n, double ret[TSR_AUDIT_QUANTILES]);

/* A state's form in a verdict: the codings of momenta and variances. */
struct tsr_audit_form {
	char name[64]; /* as --state takes it: "tight", or "ratio8/sqrt8" */
	const struct tsr_coding *momentum, *variance;
	enum tsr_finding_level level; /* of update_nmse */
	double update_nmse, median; /* over pairs of tensors, the largest and the median */
	double bytes; /* per element, of both */
	const char *worst; /* the variance of the pair of tensors with the largest */
	bool usual; /* what tsr_pack() does by default */
};

#define TSR_AUDIT_FORMS_MAX 8

/**
 * struct tsr_audit_verdict - What an audit says to use; see tsr_audit_judge()
 * @n, @form: forms that hold all tensors, the one to use first and the others by error; n is 0 without pairs
 * @found:   whether the first is one to use: without, none within the limits holds all tensors
 * @weight:  the coding for weights; NULL: none holds all of them
 * @weight_nmse, @weight_bytes: its largest NMSE, and its bytes per element
 * @lr, @weight_step, @weight_step_worst: with it, the largest tsr_weight_step() of a weight at the least
 *           learning rate of the checkpoint, and which weight that is; @lr is 0 if none was measured
 */
struct tsr_audit_verdict {
	unsigned n;
	bool found;
	struct tsr_audit_form form[TSR_AUDIT_FORMS_MAX];
	const struct tsr_coding *weight;
	double weight_nmse, weight_bytes;
	double lr, weight_step;
	const char *weight_step_worst;
};

/**
 * tsr_audit_judge() - Which codecs to use, of those that were tried
 *
 * The first form is the one that was asked for.  Else, of the pairs for momenta and variances that hold all
 * tensors in at most 2.2 bytes per element (in any, if those are all bad) with an NMSE of at most 0.01 in
 * each, those count whose worst update error is within 5% of the least; of these, where there are any, those
 * without stuck groups; of these the pair whose variances have the least worst NMSE.  Named forms that were
 * tried follow, and bf16/bf16.
 * For weights it is pack's default, or if that was not tried the codec with the least worst NMSE.
 */
TSR_API void tsr_audit_judge(const struct tsr_audit *a, struct tsr_audit_verdict *ret);

#endif
