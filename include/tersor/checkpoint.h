/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TERSOR_CHECKPOINT_H
#define TERSOR_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/codec.h"
#include "tersor/dtype.h"
#include "tersor/measure.h"
#include "tersor/status.h"

/* Limits on what a file may ask for; see docs/format.md. */
#define TSR_RANK_MAX 64u
#define TSR_NAME_MAX 65535u

/* An array as it stands in a file: contiguous, row-major, little-endian. */
struct tsr_array {
	char *name;
	enum tsr_dtype dtype;
	unsigned rank;
	uint64_t *shape; /* @rank dimensions */
	uint64_t numel; /* their product; 1 for rank 0 */
	uint64_t nbytes;
	unsigned file; /* index into struct tsr_checkpoint's files */
	uint64_t offset; /* from the start of that file */
};

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
	bool has_error; /* whether @error was recorded */
	struct tsr_error_summary error;
};

struct tsr_meta {
	char *key;
	char *value;
};

struct tsr_file;

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
	bool packed;
	unsigned generation; /* lossy generations so far: 0 for what was never packed */
	size_t *tensor_by_name; /* indices of tensors, sorted by name */
};

/**
 * tsr_checkpoint_open() - Open files as one checkpoint
 * @paths: @npaths safetensors files; their tensors and metadata are joined
 * @ret:   out: to be closed with tsr_checkpoint_close(); untouched on failure
 *
 * A packed file shows its source tensors.  Kinds are not known yet, except in a packed file: see
 * tsr_names_assign().
 *
 * Return: TSR_OK; TSR_E_FORMAT for a malformed file, a name that two files share or metadata in
 * which they differ; TSR_E_UNSUPPORTED; TSR_E_LIMIT; TSR_E_IO; TSR_E_NOMEM.
 */
enum tsr_status tsr_checkpoint_open(const char *const *paths, unsigned npaths,
				    struct tsr_checkpoint **ret, struct tsr_err *err);
void tsr_checkpoint_close(struct tsr_checkpoint *c);

/* The tensor with this name, or NULL. */
const struct tsr_tensor *tsr_checkpoint_find(const struct tsr_checkpoint *c, const char *name);

/* @nbytes of an array's data from byte @offset in it; the caller stays inside the array. */
enum tsr_status tsr_array_read(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t offset, size_t nbytes, void *buf, struct tsr_err *err);

/* TSR_E_IO if a file changed since it was opened. */
enum tsr_status tsr_checkpoint_check_unchanged(const struct tsr_checkpoint *c, struct tsr_err *err);

/* Bytes that all arrays of a tensor take. */
uint64_t tsr_tensor_stored_nbytes(const struct tsr_checkpoint *c, const struct tsr_tensor *t);

/* Whether two tensors have the same dimensions. */
bool tsr_tensor_same_shape(const struct tsr_tensor *a, const struct tsr_tensor *b);

/* Bytes of a tensor in its own dtype. */
uint64_t tsr_tensor_nbytes(const struct tsr_tensor *t);

#endif
