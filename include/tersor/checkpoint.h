/* SPDX-License-Identifier: Apache-2.0 */
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

struct tsr_layout;

/* An array of a file. */
struct tsr_array {
	const char *name;
	enum tsr_dtype dtype;
	unsigned rank;
	const uint64_t *shape; /* @rank dimensions */
	uint64_t numel; /* their product; 1 for rank 0 */
	uint64_t nbytes;
	unsigned file; /* index into struct tsr_checkpoint's files */
	uint64_t offset; /* from the start of that file: contiguous, row-major, little-endian */
	const struct tsr_layout
		*layout; /* NULL: as @file and @offset say; else they mean nothing */
	const unsigned char
		*memory; /* the data itself, borrowed; then no file holds it.  NULL: a file does */
	bool has_crc; /* whether the file has a CRC-32 of exactly these bytes; not with a layout */
	uint32_t crc;
	bool own_name; /* @name is the file's own, not found from what was saved around it */
};

/* What a checkpoint was read from, or is to be written as. */
enum tsr_container {
	TSR_CONTAINER_SAFETENSORS,
	TSR_CONTAINER_TORCH, /* .pt: what torch.save writes */
	TSR_CONTAINER_DCP, /* a directory of torch.distributed.checkpoint; only read */
	TSR_CONTAINER_NPZ,
	TSR_CONTAINER_NPY,
	TSR_CONTAINER_COUNT
};

/* "safetensors", "pt", "dcp", "npz", "npy". */
TSR_API const char *tsr_container_name(enum tsr_container container);

/*
 * The figures of one tensor's measurement that a packed file keeps, rounded to 9 digits.
 */
struct tsr_error_summary {
	double value[TSR_METRIC_COUNT];
	uint64_t exact; /* elements that come back with the same bits */
	uint64_t flushed; /* nonzero elements that come back as 0 */
	uint64_t scale_underflow; /* groups whose scale was stored as 0 though not all are 0 */
};

/*
 * A tensor of the training state.  In a packed file it is spread over planes; anywhere else it is
 * one array.
 */
struct tsr_tensor {
	const char *name;
	enum tsr_dtype dtype; /* before packing */
	unsigned rank;
	const uint64_t *shape;
	uint64_t numel;
	enum tsr_kind kind;
	const char *weight; /* of a momentum or variance: the name of its weight, or NULL */
	struct tsr_coding coding; /* codec NULL: stored as it is, in plane[0] */
	unsigned nplanes;
	size_t plane[TSR_PLANES_MAX]; /* indices into struct tsr_checkpoint's arrays */
	uint64_t hash[TSR_PLANES_MAX]; /* XXH3-64 of each plane; packed files only */
	const struct tsr_error_summary *error; /* that was recorded; NULL: none */
};

/* Which of the files of one packed checkpoint a file is. */
struct tsr_shard {
	uint64_t number, count; /* from 1 on */
	uint64_t set; /* the same in all of them, and hardly in any others */
};

struct tsr_file;
struct tsr_arena;
struct tsr_value;

/**
 * struct tsr_open_options - How to read what does not say everything itself
 * @as:        what elements of an .npy file without a type (|V1, <V2) are; TSR_DTYPE_COUNT: refused
 * @follow:    whether files that an index or a directory names may be symbolic links
 * @as_stored: show the arrays of other tools' compressed states as they are, without decoding
 * @params:    @nparams names of parameters in the order in which an optimizer numbered them, for
 *             where names and shapes cannot tell; NULL
 */
struct tsr_open_options {
	enum tsr_dtype as;
	bool follow;
	bool as_stored;
	const char *const *params;
	size_t nparams;
};

/* Nothing opaque, no links, states decoded. */
TSR_API struct tsr_open_options tsr_open_defaults(void);

/**
 * struct tsr_checkpoint - Training state in one or more files, opened for reading
 *
 * Everything but the elements is in memory.  Read-only after opening, so all reading functions are
 * thread-safe.  Names are unique.
 */
struct tsr_checkpoint {
	const char *path; /* of the first file */
	unsigned nfiles;
	struct tsr_file **files;
	size_t narrays;
	struct tsr_array *arrays; /* in the order of their data, file by file */
	size_t ntensors;
	struct tsr_tensor *tensors; /* in the order of the source's data */
	size_t nmeta;
	struct tsr_meta *meta; /* sorted by key; without the entry of a packed file itself */
	enum tsr_container container; /* of the first input */
	bool packed;
	bool coded; /* some tensors are in the compressed form of another tool */
	unsigned generation; /* lossy generations so far: 0 for what was never packed */
	struct tsr_shard shard; /* of the last packed file that was read */
	size_t *tensor_by_name; /* indices of tensors, sorted by name */
	size_t ntrees;
	struct tsr_value **trees; /* what was saved around the tensors; see src/format/value.h */
	size_t nnotes;
	char **notes; /* what a user should know though it is no error; safe to print */
	size_t nunchecked; /* records that should have a checksum and have none */
	size_t nunused; /* records of archives that are part of nothing */
	const char *unused; /* the name of one of them */
	struct tsr_arena *arena; /* of arrays, metadata, trees and notes */
};

/**
 * tsr_checkpoint_open() - Open files as one checkpoint
 * @paths: @npaths files or directories, whose tensors and metadata are joined: safetensors; an
 *         index of shards, or a directory with one; what torch.save wrote; a directory of
 *         torch.distributed.checkpoint; .npz, .npy.  Known by content, never by name
 * @options: NULL for tsr_open_defaults()
 * @ret:   out: to be closed with tsr_checkpoint_close(); untouched on failure
 *
 * A packed file shows its source tensors, and so do the compressed states of other tools
 * (docs/containers.md).  Optimizer states in a torch container are named after their parameters.
 * Kinds are not known yet, except in a packed file: see tsr_names_assign().
 *
 * Return: TSR_OK; TSR_E_FORMAT for a malformed file, a name that two files share or metadata in
 * which they differ; TSR_E_UNSUPPORTED; TSR_E_LIMIT; TSR_E_IO; TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_checkpoint_open(const char *const *paths, unsigned npaths,
					    const struct tsr_open_options *options,
					    struct tsr_checkpoint **ret, struct tsr_err *err);
TSR_API void tsr_checkpoint_close(struct tsr_checkpoint *c);

/* The tensor with this name, or NULL. */
TSR_API const struct tsr_tensor *tsr_checkpoint_find(const struct tsr_checkpoint *c,
						     const char *name);

/*
 * @nbytes of an array's data from byte @offset in it, in row-major order and little-endian; whole
 * elements, inside the array.
 */
TSR_API enum tsr_status tsr_array_read(const struct tsr_checkpoint *c, const struct tsr_array *a,
				       uint64_t offset, size_t nbytes, void *buf,
				       struct tsr_err *err);

/* TSR_E_FORMAT if a record has no checksum, or is part of nothing: what --strict refuses. */
TSR_API enum tsr_status tsr_checkpoint_check_strict(const struct tsr_checkpoint *c,
						    struct tsr_err *err);

/* TSR_E_IO if a file changed since it was opened. */
TSR_API enum tsr_status tsr_checkpoint_check_unchanged(const struct tsr_checkpoint *c,
						       struct tsr_err *err);

/* Bytes that all arrays of a tensor take. */
TSR_API uint64_t tsr_tensor_stored_nbytes(const struct tsr_checkpoint *c,
					  const struct tsr_tensor *t);

/* Whether two tensors have the same dimensions. */
TSR_API bool tsr_tensor_same_shape(const struct tsr_tensor *a, const struct tsr_tensor *b);

/* Bytes of a tensor in its own dtype. */
TSR_API uint64_t tsr_tensor_nbytes(const struct tsr_tensor *t);

#endif
