/* SPDX-License-Identifier: Apache-2.0 */
/* Packing, unpacking and converting checkpoints. */
#ifndef TERSOR_PACK_H
#define TERSOR_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/checkpoint.h"
#include "tersor/codec.h"
#include "tersor/learn.h"
#include "tersor/measure.h"
#include "tersor/names.h"
#include "tersor/run.h"
#include "tersor/status.h"

/* The largest error that a tensor may have; for TSR_METRIC_COSINE, of 1 - cosine. */
struct tsr_bound {
	enum tsr_metric metric;
	double limit;
};

/*
 * Codecs to choose from: one for weights, and one for momenta with one for their variances, which are
 * measured together.  A coding without a codec is not chosen.
 */
struct tsr_candidate {
	struct tsr_coding weight, momentum, variance;
};

#define TSR_CANDIDATES_MAX 20u

/**
 * struct tsr_choice_options - How codecs are chosen, tensor by tensor
 * @candidates: @ncandidates of them.  Their order matters where two take the same bytes.  To leave a
 *           tensor raw is always one more.  A kind that none is for has the coding of the options
 * @bound:   the largest error: tsr_update_measure_nmse() of a momentum and its variance, the NMSE of what
 *           is packed on its own.  Each tensor has the candidate with the fewest bytes that is within it
 * @max_nbytes: in place of @bound, the most bytes of all files that are written: the bound is then the
 *           least that fits.  0: @bound counts
 * @weight_steps: with @bound, and if no candidate is for weights: those with a momentum and a variance
 *           have the smallest of bf16+ulp8, bf16+rn10, bf16+rn12 and bf16+ulp16 with a
 *           tsr_weight_step() of at most TSR_WEIGHT_STEP_MAX at the learning rate of the checkpoint
 *
 * A momentum and its variance whose tiles differ cannot be measured together, and such candidates are
 * none.  Candidates are tried in the order of their bytes, those of all tensors in one pass over the
 * data that is not settled, on the GPU if there is one; with @max_nbytes every candidate is.
 */
struct tsr_choice_options {
	size_t size; /* of this struct: set by tsr_choice_defaults() */
	struct tsr_candidate candidates[TSR_CANDIDATES_MAX];
	unsigned ncandidates;
	double bound;
	uint64_t max_nbytes;
	bool weight_steps;
};

/*
 * A bound of 1e-4, and for momenta and variances dyn8, e4m3, e4m3x, ratio8 with sqrt8 and log8, softsign8
 * with sqrt8, and bf16; none for weights, but weight_steps.
 */
TSR_API struct tsr_choice_options tsr_choice_defaults(void);

/* How a tensor's codec was chosen. */
struct tsr_choice {
	unsigned ntried; /* candidates; 0: there was no choice */
	enum tsr_metric
		metric; /* TSR_METRIC_UPDATE_NMSE, TSR_METRIC_WEIGHT_STEP or TSR_METRIC_NMSE */
	double error; /* of what was chosen; 0 if it stays raw */
	/* of the candidates with fewer bytes the one with the least error; no codec: there are none */
	struct tsr_coding refused;
	double refused_error; /* infinite also if it cannot hold the tensor */
};

/* Which planes of a packed file are entropy coded, losslessly: format.md, sections 4.8 and 18. */
enum tsr_coded_planes {
	TSR_CODED_NONE,
	TSR_CODED_STATES, /* all but weights and other tensors under their names: it opens as a model */
	TSR_CODED_ALL,
};

/**
 * struct tsr_pack_options - How to pack
 * @weight, @momentum, @variance: the codings of FP32 tensors of these kinds; momenta and variances of
 *           BF16 and F16 have them too if they have groups
 * @rules:   @nrules rules that settle the kind of tensors; TSR_KIND_OTHER keeps one raw
 * @bounds:  @nbounds limits that every packed tensor must meet
 * @strict:  fail if a codec cannot take a tensor, instead of keeping it raw, and if a variance becomes 0
 *           under a momentum that does not
 * @force:   replace an existing output
 * @dry_run: only plan: read headers, and samples of tensors that may be masters; write nothing
 * @open:    how to read the inputs; NULL for tsr_open_defaults()
 * @max_shard_nbytes: the most data of one packed file; tensors are not split.  0: one file
 * @weights_out: the path of a plain safetensors file for the weights, as narrow as they are stored,
 *            and for raw tensors that are no states, under their names: what loaders of the model
 *            take.  The output then has the rest and names this file.  It is in the directory of the
 *            output, both are absent before, and it is published first.  Not with @max_shard_nbytes.
 *            NULL: one file
 * @other:   the coding of what an optimizer keeps in FP32, in tensors of rank 1 or more, and no kind is
 *           known for; without a codec it stays raw
 * @min_elements: tensors with fewer elements stay raw; 0 or 1: none do
 * @rules_matched: NULL: a rule that matches no tensor's name is a note, or with @strict TSR_E_USAGE.
 *            Otherwise one bool per rule, which is set to true where the rule matches a name, and no
 *            note: for callers that apply the same rules to several files
 * @learn:    with learned codecs: how blocks and codebook are learned; NULL for tsr_learn_defaults().
 *            With its @peer they take any size, otherwise tensors of which they would take more than 1.1
 *            bytes per element have softsign8 or sqrt8
 * @choice:   codecs to choose from for each tensor, by their error; with it @momentum and @variance are for
 *            kinds without candidates, and @dry_run reads all data to choose.  NULL: no choice
 * @coded:    which planes are entropy coded; it takes as much room beside the output as it would have
 *            without.  The file @weights_out has plain ones
 * @meta_order: keep the order of a safetensors file's metadata too, so that unpacking gives the bytes of a
 *            file that safetensors wrote, if no codec loses anything
 * @delta:    the path of a packed checkpoint, the base: coded planes are what differs from its planes of
 *            the same name, shape and coding where that takes fewer bytes.  The output names it, is only
 *            read with it, and all planes are coded unless @coded says states.  NULL: no delta
 * @as:       of tsr_pack_model(), the type of its F64, F32, F16 and BF16 tensors, rounded to nearest;
 *            TSR_DTYPE_COUNT: what they are
 * @max_chain: the most deltas from the output down to a full checkpoint; 0: TSR_CHAIN_DEFAULT
 * @base_levels: directories at the end of @delta that the output names, too, and finds as many levels up:
 *            with 1, "run/step2/x" is found from any "run/step3/y".  0: only beside the output.
 *            tsr_pack_directory() does not use it
 * @learned:  with learned codecs: what was learned already, such as from gradients; NULL: it is learned
 *            from the momenta and variances themselves, which are then read twice more
 */
struct tsr_pack_options {
	size_t size; /* of this struct: set by tsr_pack_defaults() */
	struct tsr_coding weight;
	struct tsr_coding momentum;
	struct tsr_coding variance;
	const struct tsr_name_rule *rules;
	unsigned nrules;
	const struct tsr_bound *bounds;
	unsigned nbounds;
	bool strict;
	bool force;
	bool dry_run;
	const struct tsr_open_options *open;
	uint64_t max_shard_nbytes;
	const char *weights_out;
	struct tsr_coding other;
	uint64_t min_elements;
	bool *rules_matched;
	const struct tsr_learn_options *learn;
	const struct tsr_learned *learned;
	const struct tsr_choice_options *choice;
	enum tsr_coded_planes coded;
	bool meta_order;
	const char *delta;
	unsigned max_chain;
	enum tsr_dtype as;
	unsigned base_levels;
};

/* To read a delta takes all of its chain. */
#define TSR_CHAIN_DEFAULT 8u

/* What is smaller than this is rarely a weight, and a packed tensor's description is larger than it. */
#define TSR_MIN_ELEMENTS_DEFAULT 16u

/*
 * bf16+ulp8, softsign8 and sqrt8 with e8m8 scales and groups of 32; other state and tensors below
 * TSR_MIN_ELEMENTS_DEFAULT elements raw.
 */
TSR_API struct tsr_pack_options tsr_pack_defaults(void);

/*
 * Why a tensor was kept raw: it has elements that its codec cannot represent, or, from
 * TSR_RAW_SMALL on, it is kept raw unless a rule says otherwise.
 */
enum tsr_raw_reason {
	TSR_RAW_NO, /* it was packed, or is not of a kind to pack */
	TSR_RAW_NONFINITE, /* NaN or infinite elements */
	TSR_RAW_NEGATIVE, /* negative variances */
	TSR_RAW_OVERFLOW, /* finite elements or scales past the range of the narrow format */
	TSR_RAW_SMALL, /* fewer elements than the options ask for */
	TSR_RAW_INTEGERS, /* all elements are integers, and the codec would change some */
	TSR_RAW_CHOICE, /* no codec to choose from is within the bound */
};

/* What became of one tensor. */
struct tsr_packed_tensor {
	/* of its encoding, even if that was discarded; zeros if it was not tried */
	struct tsr_measured measure;
	struct tsr_encode_report report;
	enum tsr_raw_reason raw;
	uint64_t nbytes; /* in the packed file */
	/* of a variance with its momentum, its `partner`; zeros if it was not measured */
	struct tsr_update_measured update;
	struct tsr_breach breach; /* of a variance with its momentum, in the source */
	double weight_step; /* tsr_weight_step() of a packed weight; negative: it was not measured */
	const struct tsr_choice *choice; /* NULL: there was none */
};

/* The outcome of tsr_pack(). */
struct tsr_packing;

/**
 * tsr_pack() - Pack one or more files into one
 * @paths: @npaths inputs, see tsr_checkpoint_open()
 * @out:   path of the packed file; it is written beside it and renamed when complete.  "/dev/stdout" is
 *         the standard output, which gets the complete file
 * @options: NULL for tsr_pack_defaults()
 * @run:   threads and progress; NULL: the calling thread only
 * @ret:   out: to be freed with tsr_packing_free(); set on TSR_OK, TSR_E_BOUND, TSR_E_DURABILITY
 *
 * Every packed tensor is decoded again and measured.  The memory needed does not depend on the size of
 * the inputs' data.  The bytes of the file depend on inputs and options only.
 *
 * Return: TSR_OK; TSR_E_BOUND if a bound is exceeded or no choice fits max_nbytes; TSR_E_UNSUPPORTED for
 * an input that is packed already, a reserved name, or with @strict a tensor that would stay raw; or
 * whatever reading and writing return.  Unless it is TSR_OK or TSR_E_DURABILITY, nothing is left at @out
 * or @weights_out.
 */
TSR_API enum tsr_status tsr_pack(const char *const *paths, unsigned npaths, const char *out,
				 const struct tsr_pack_options *options, const struct tsr_run *run,
				 struct tsr_packing **ret, struct tsr_err *err);
TSR_API void tsr_packing_free(struct tsr_packing *p);

/**
 * tsr_pack_model() - Pack the model alone, its tensors as they are or as @options->as
 *
 * As tsr_pack(), but codings, rules and choices of the options are not used.  With their `delta`, which may
 * then be a model that is not packed, the output is an update for tsr_apply().  Of an input that has more
 * than the model, or other types, the model is written beside the output first, and removed again.
 */
TSR_API enum tsr_status tsr_pack_model(const char *const *paths, unsigned npaths, const char *out,
				       const struct tsr_pack_options *options,
				       const struct tsr_run *run, struct tsr_packing **ret,
				       struct tsr_err *err);

/* The source: its tensors have their kinds, codings, hashes and errors.  Borrowed. */
TSR_API const struct tsr_checkpoint *tsr_packing_source(const struct tsr_packing *p);

/* What became of a tensor of the source, by its index there; NULL past the end. */
TSR_API const struct tsr_packed_tensor *tsr_packing_tensor(const struct tsr_packing *p,
							   size_t index);

/*
 * The bound that codecs were chosen by: that of the options, or the least that fits their max_nbytes.
 * 0 without a choice.
 */
TSR_API double tsr_packing_bound(const struct tsr_packing *p);

/* Bytes of the packed file or files, headers included. */
TSR_API uint64_t tsr_packing_nbytes(const struct tsr_packing *p);

/* The same if no plane were coded. */
TSR_API uint64_t tsr_packing_plain_nbytes(const struct tsr_packing *p);

/* tsr_checkpoint_generation() of the packed file. */
TSR_API unsigned tsr_packing_generation(const struct tsr_packing *p);

/* Write why a tensor stayed raw into @text of @room bytes, such as "3 non-finite values". */
TSR_API void tsr_raw_reason_text(const struct tsr_packed_tensor *t, char *text, size_t room);

/**
 * struct tsr_write_options - How to write a checkpoint that is not packed
 * @container: of the output; TSR_CONTAINER_COUNT: the source's, but torch for DCP unless the path of the
 *           output ends in a slash
 * @flashoptim: write a compressed state dict of FlashOptim, in a torch container
 * @max_shard_nbytes: the most data of one safetensors or .distcp file; tensors are not split.  0: one file
 * @open:    how to read the input; NULL for tsr_open_defaults()
 * @strict:  fail if a record of the input has no checksum
 * @force:   replace an existing output
 * @dry_run: only plan: read headers, write nothing
 * @only_model: write the model alone: what is in its state_dict, or without one everything that is not
 *            an optimizer's by its name; only this is read and checked.  Not for tsr_convert()
 * @as:      with @only_model, the type of its F64, F32, F16 and BF16 tensors: TSR_F32, TSR_F16 or
 *           TSR_BF16, rounded to nearest; TSR_DTYPE_COUNT: what they were
 */
struct tsr_write_options {
	size_t size; /* of this struct: set by tsr_write_defaults() */
	enum tsr_container container;
	bool flashoptim;
	uint64_t max_shard_nbytes;
	const struct tsr_open_options *open;
	bool strict;
	bool force;
	bool dry_run;
	bool only_model;
	enum tsr_dtype as;
};

/* The source's container; never replace an output. */
TSR_API struct tsr_write_options tsr_write_defaults(void);

/* The outcome of tsr_unpack() and tsr_convert(). */
struct tsr_unpacking;

/**
 * tsr_unpack() - Restore the checkpoint that was packed, or decode another tool's states
 * @path: a packed file, the index of one in shards, or a compressed state dict of FlashOptim,
 *        bitsandbytes, COAT, Gefen, torchao or TransformerEngine
 * @out:  path of the file, or for DCP the directory, to write
 * @options: NULL for tsr_write_defaults()
 * @run:  threads and progress; NULL: the calling thread only
 * @ret:  out: to be freed with tsr_unpacking_free(); set on TSR_OK and TSR_E_DURABILITY
 *
 * Names, shapes, dtypes, order, metadata and what was saved around the tensors are the source's;
 * every plane is checked against its hash.  If a lossy codec was involved, the output says so in its
 * metadata or in a record of its own, tersor_generation.
 *
 * Return: TSR_OK; TSR_E_UNSUPPORTED if there is nothing to decode; TSR_E_FORMAT if the input is damaged;
 * or whatever reading and writing return.
 */
TSR_API enum tsr_status tsr_unpack(const char *path, const char *out,
				   const struct tsr_write_options *options,
				   const struct tsr_run *run, struct tsr_unpacking **ret,
				   struct tsr_err *err);

/**
 * tsr_convert() - Write a checkpoint in another container, every element with its bits
 * @paths: @npaths inputs, see tsr_checkpoint_open()
 *
 * In safetensors, what was saved around the tensors is kept in the metadata, from which a conversion to
 * torch restores it; NumPy containers drop it, which tsr_checkpoint_note() of the source says.
 */
TSR_API enum tsr_status tsr_convert(const char *const *paths, unsigned npaths, const char *out,
				    const struct tsr_write_options *options,
				    const struct tsr_run *run, struct tsr_unpacking **ret,
				    struct tsr_err *err);

/**
 * struct tsr_recode_options - How to write a packed checkpoint again
 * @coded:   which planes are entropy coded; those of @weights_out are not
 * @max_shard_nbytes, @weights_out, @open, @force, @dry_run, @delta, @max_chain, @base_levels: as in
 *           struct tsr_pack_options
 */
struct tsr_recode_options {
	size_t size; /* of this struct: set by tsr_recode_defaults() */
	enum tsr_coded_planes coded;
	uint64_t max_shard_nbytes;
	const char *weights_out;
	const struct tsr_open_options *open;
	bool force;
	bool dry_run;
	const char *delta;
	unsigned max_chain;
	unsigned base_levels;
};

/* No plane coded, in one file. */
TSR_API struct tsr_recode_options tsr_recode_defaults(void);

/**
 * tsr_recode() - Write a packed checkpoint with other planes entropy coded, or none
 * @path:    a packed file, or the index of one in shards
 * @options: NULL for tsr_recode_defaults()
 * @ret:     out: to be freed with tsr_unpacking_free(); set on TSR_OK and TSR_E_DURABILITY
 *
 * What it decodes to, its hashes, error figures and lossy generations stay, and every plane is checked
 * against its hash.  The bytes depend on these and the options only: there and back gives the same files.
 *
 * Return: TSR_OK; TSR_E_UNSUPPORTED if @path is not packed; TSR_E_FORMAT if it is damaged; or whatever
 * reading and writing return.
 */
TSR_API enum tsr_status tsr_recode(const char *path, const char *out,
				   const struct tsr_recode_options *options,
				   const struct tsr_run *run, struct tsr_unpacking **ret,
				   struct tsr_err *err);

/**
 * tsr_apply() - Put a weight update onto the model that it was made for
 * @update:  a packed delta of raw tensors, as tsr_pack_model() writes it
 * @model:   its base, wherever it is and whatever it is called now
 * @out:     path of the safetensors file to write; NULL: in place of @model, one plain safetensors file.
 *           Either is written beside its name and renamed when complete
 * @options: `max_shard_nbytes`, `open`, `force` and `dry_run` are used; NULL for tsr_write_defaults()
 * @ret:     out: to be freed with tsr_unpacking_free(); set on TSR_OK and TSR_E_DURABILITY
 *
 * Return: TSR_OK; TSR_E_FORMAT if @model is not the one that the update was made for, or the update is
 * damaged; TSR_E_UNSUPPORTED if it is not packed; or whatever reading and writing return.
 */
TSR_API enum tsr_status tsr_apply(const char *update, const char *model, const char *out,
				  const struct tsr_write_options *options,
				  const struct tsr_run *run, struct tsr_unpacking **ret,
				  struct tsr_err *err);

TSR_API void tsr_unpacking_free(struct tsr_unpacking *u);

/* What was read, with its notes on what the output cannot hold.  Borrowed. */
TSR_API const struct tsr_checkpoint *tsr_unpacking_source(const struct tsr_unpacking *u);

/* The container that was written. */
TSR_API enum tsr_container tsr_unpacking_container(const struct tsr_unpacking *u);

/* Bytes of the files written. */
TSR_API uint64_t tsr_unpacking_nbytes(const struct tsr_unpacking *u);

#endif
