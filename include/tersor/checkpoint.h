/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint opened for reading: its tensors, metadata and elements. */
#ifndef TERSOR_CHECKPOINT_H
#define TERSOR_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/codec.h"
#include "tersor/dtype.h"
#include "tersor/measure.h"
#include "tersor/status.h"

/* What a checkpoint was read from, or is to be written as. */
enum tsr_container {
	TSR_CONTAINER_SAFETENSORS,
	TSR_CONTAINER_TORCH, /* .pt: what torch.save writes */
	TSR_CONTAINER_DCP, /* a directory of torch.distributed.checkpoint */
	TSR_CONTAINER_NPZ,
	TSR_CONTAINER_NPY,
	TSR_CONTAINER_COUNT
};

/* "safetensors", "pt", "dcp", "npz", "npy". */
TSR_API const char *tsr_container_name(enum tsr_container container);

/*
 * How far off packing left a tensor, as a packed file records it: tsr_measure_error() of each metric, rounded
 * to 13 bits, the NMSE to 45.
 */
struct tsr_error_summary {
	double value[TSR_METRIC_COUNT]; /* by enum tsr_metric */
};

/*
 * A tensor of the training state, to look at: it belongs to its checkpoint.  A packed tensor is stored
 * as the planes of its codec; any other one as a single plane, its elements.  Members may be appended.
 */
struct tsr_tensor {
	const char *name;
	enum tsr_dtype dtype; /* before packing */
	unsigned rank;
	const uint64_t *shape;
	uint64_t numel;
	enum tsr_kind kind;
	unsigned nplanes;
	const char *weight; /* of a momentum or variance: the name of its weight, or NULL */
	struct tsr_coding coding; /* codec NULL: stored as it is */
	size_t plane[TSR_PLANES_MAX]; /* internal: which arrays of the checkpoint the planes are */
	uint64_t hash[TSR_PLANES_MAX]; /* XXH3-64 of each plane; packed files only */
	const struct tsr_error_summary *error; /* of packing it; NULL: not recorded */
	bool ruled; /* a rule of the user settled its kind */
	bool orthogonal; /* a momentum of Muon, whose update is made orthogonal: its group says so */
	/* its position in the model's state_dict, from 1 on, if what was saved around it says so; or 0 */
	size_t model;
	/* of what an optimizer keeps and no kind is known for: what it calls it, such as "sum"; or NULL */
	const char *field;
	const char *narrow; /* the tensor that has the first plane of this one, or NULL: its own */
	/*
	 * of a momentum: the variance of its parameter, to which its elements are stored if its codec is
	 * relative; or NULL
	 */
	const char *beside;
	/*
	 * Of a momentum: the variance of the same weight that its optimizer divides by; of that
	 * variance: the momentum.  Its index from 1 on; 0: none, or not known to tsr_names_assign()
	 */
	size_t partner;
	/*
	 * Of a floating-point tensor that belongs to a quantized weight, such as a scale, or that stores one:
	 * the name of that weight.  NULL: it does not, or tsr_names_assign() was not called
	 */
	const char *quantized;
	const unsigned char
		*factors; /* internal: the plane of its factors before it has one, or NULL */
};

/* What becomes of Python objects that are no plain values (SECURITY.md). */
enum tsr_opaque {
	TSR_OPAQUE_CARRY, /* as inert instructions, which an output has again; a note names them */
	TSR_OPAQUE_REFUSE, /* refuse all */
	TSR_OPAQUE_DROP, /* leave all out: None in their place, and a note */
};

/**
 * struct tsr_open_options - How to read files that leave something open
 * @as:        the type of opaque elements (|V1, <V2) of .npy files; TSR_DTYPE_COUNT: refuse them
 * @follow:    allow symbolic links where an index or a directory names files
 * @as_stored: show the arrays of other tools' compressed states as they are, without decoding
 * @params:    @nparams names of parameters in the order in which an optimizer numbered them, used
 *             where names and shapes are ambiguous; NULL: none
 * @opaque:    what becomes of Python objects that are no plain values
 * @numbered:  states of parameters that names and shapes do not settle keep the optimizer's numbers
 *             as names, with a note; false: refuse them
 * @parts:     accept files with one rank's parts of tensors, as recordings have them; false: refuse
 *             what DCP's Hugging Face writer made on several ranks
 * @order:     @norder names of parameters in the order of the model, of which an optimizer numbers
 *             some; others of the model count as not trained; NULL: the order that the model has
 * @base:      the base of a delta, which is otherwise beside it under the name that it has; NULL: there
 * @run:       the threads that hash the base of a delta if that is not packed, and what may stop them;
 *             borrowed; NULL: one thread
 */
struct tsr_open_options {
	size_t size; /* of this struct: set by tsr_open_defaults() */
	enum tsr_dtype as;
	bool follow;
	bool as_stored;
	const char *const *params;
	size_t nparams;
	enum tsr_opaque opaque;
	bool numbered;
	bool parts;
	const char *const *order;
	size_t norder;
	const char *base;
	const struct tsr_run *run;
};

/* Refuse opaque elements and links, decode states. */
TSR_API struct tsr_open_options tsr_open_defaults(void);

/*
 * Training state in one or more files, opened for reading.  Everything but the elements is in memory.
 * Names are unique.  What is read from it is borrowed until it is closed; reading is thread-safe.
 */
struct tsr_checkpoint;

/**
 * tsr_checkpoint_open() - Open files as one checkpoint
 * @paths: @npaths files or directories, whose tensors and metadata are joined: safetensors; an
 *         index of shards, or a directory with one; what torch.save wrote; a directory of
 *         torch.distributed.checkpoint or of another framework (docs/reading.md); .npz, .npy.  Files
 *         are detected by content, never by name.  A FIFO, and "/dev/stdin" if that is no regular file,
 *         is read to its end into a scratch file first
 * @options: NULL for the defaults
 * @ret:   out: to be closed with tsr_checkpoint_close(); untouched on failure
 *
 * A packed file presents the tensors that were packed; so do the compressed states of other tools
 * (SECURITY.md).  Optimizer states in a torch container are named after their parameters.
 * Only a packed file knows its tensors' kinds; tsr_names_assign() finds those of others.
 *
 * Return: TSR_OK; TSR_E_FORMAT for a malformed file, a name that two files share or metadata in
 * which they differ; TSR_E_UNSUPPORTED; TSR_E_LIMIT; TSR_E_IO; TSR_E_NOMEM; TSR_E_CANCELLED if a signal
 * interrupted waiting for a stream.
 */
TSR_API enum tsr_status tsr_checkpoint_open(const char *const *paths, unsigned npaths,
					    const struct tsr_open_options *options,
					    struct tsr_checkpoint **ret, struct tsr_err *err);
TSR_API void tsr_checkpoint_close(struct tsr_checkpoint *c);

/* The path of the first file, as it was given. */
TSR_API const char *tsr_checkpoint_path(const struct tsr_checkpoint *c);

/* The container of the first input. */
TSR_API enum tsr_container tsr_checkpoint_container(const struct tsr_checkpoint *c);

/* Whether it is a packed file. */
TSR_API bool tsr_checkpoint_is_packed(const struct tsr_checkpoint *c);

/* How often its elements went through a lossy codec; 0 for what was never packed. */
TSR_API unsigned tsr_checkpoint_generation(const struct tsr_checkpoint *c);

/* Tensors in the order of the source's data; NULL past the end. */
TSR_API size_t tsr_checkpoint_ntensors(const struct tsr_checkpoint *c);
TSR_API const struct tsr_tensor *tsr_checkpoint_tensor(const struct tsr_checkpoint *c,
						       size_t index);

/* The tensor with this name, or NULL. */
TSR_API const struct tsr_tensor *tsr_checkpoint_find(const struct tsr_checkpoint *c,
						     const char *name);

/* Metadata sorted by key, without the entry that describes a packed file; NULL past the end. */
TSR_API size_t tsr_checkpoint_nmeta(const struct tsr_checkpoint *c);
TSR_API const struct tsr_meta *tsr_checkpoint_meta(const struct tsr_checkpoint *c, size_t index);

/* What a user should know though it is not an error: lines safe to print; NULL past the end. */
TSR_API size_t tsr_checkpoint_nnotes(const struct tsr_checkpoint *c);
TSR_API const char *tsr_checkpoint_note(const struct tsr_checkpoint *c, size_t index);

/**
 * tsr_checkpoint_read_f32() - Elements of a tensor as FP32, decoded or widened
 * @t:     a tensor of @c that is packed or F32, F16 or BF16
 * @first: index of the first element, in row-major order
 * @n:     how many
 * @x:     out: @n values; undefined on failure
 *
 * Return: TSR_OK; TSR_E_UNSUPPORTED for another dtype; TSR_E_USAGE for elements that the tensor does
 * not have; TSR_E_IO; TSR_E_FORMAT for a damaged file; TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_checkpoint_read_f32(const struct tsr_checkpoint *c,
						const struct tsr_tensor *t, uint64_t first,
						size_t n, float *x, struct tsr_err *err);

/**
 * tsr_checkpoint_read_stored() - Bytes of a tensor as they are stored
 * @t:      a tensor of @c
 * @plane:  below t->nplanes
 * @offset: of the first byte in the plane, a multiple of its elements' size
 * @nbytes: how many; whole elements
 * @buf:    out: little-endian, row-major; undefined on failure
 *
 * Nothing is checked against hashes or checksums: tsr_verify() does that.
 *
 * Return: TSR_OK; TSR_E_USAGE for bytes that the plane does not have; TSR_E_IO; TSR_E_FORMAT.
 */
TSR_API enum tsr_status tsr_checkpoint_read_stored(const struct tsr_checkpoint *c,
						   const struct tsr_tensor *t, unsigned plane,
						   uint64_t offset, size_t nbytes, void *buf,
						   struct tsr_err *err);

/**
 * tsr_checkpoint_tree() - What was saved around the tensors, as a pickle
 * @ret:        out: the pickle, in which the storage of each tensor has the tensor's name as its key
 *              (docs/internals/format.md, section 5.6); lives as long as @c.  NULL: there is only a flat list
 * @nbytes_ret: out: how long it is
 *
 * Not to be called while another thread uses @c.
 *
 * Return: TSR_OK; TSR_E_UNSUPPORTED for a tensor that PyTorch has no type for; TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_checkpoint_tree(struct tsr_checkpoint *c, const void **ret,
					    size_t *nbytes_ret, struct tsr_err *err);

/* TSR_E_FORMAT if a record of an archive has no checksum, or a member is not part of anything. */
TSR_API enum tsr_status tsr_checkpoint_check_strict(const struct tsr_checkpoint *c,
						    struct tsr_err *err);

/* TSR_E_IO if a file changed since it was opened. */
TSR_API enum tsr_status tsr_checkpoint_check_unchanged(const struct tsr_checkpoint *c,
						       struct tsr_err *err);

/* Bytes that a tensor takes in its file, without headers. */
TSR_API uint64_t tsr_tensor_stored_nbytes(const struct tsr_checkpoint *c,
					  const struct tsr_tensor *t);

/* Bytes of a tensor's elements in their dtype, as before packing. */
TSR_API uint64_t tsr_tensor_nbytes(const struct tsr_tensor *t);

#endif
