/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_CKPT_CHECKPOINT_MODEL_H
#define TSR_CKPT_CHECKPOINT_MODEL_H

/* What a checkpoint is made of; its users have tersor/checkpoint.h. */

#include "base/scope.h"
#include "tersor/checkpoint.h"

struct tsr_layout;
struct tsr_file;
struct tsr_arena;
struct tsr_value;
struct tsr_coded;
struct tsr_decoding;

/* An array of a file. */
struct tsr_array {
	const char *name;
	enum tsr_dtype dtype;
	unsigned rank;
	const uint64_t *shape; /* @rank dimensions */
	uint64_t numel; /* their product; 1 for rank 0 */
	uint64_t nbytes;
	unsigned file; /* index into the files of the checkpoint */
	uint64_t offset; /* from the start of that file: contiguous, row-major, little-endian */
	/* If not NULL, the elements lie as this says, and @file and @offset mean nothing. */
	const struct tsr_layout *layout;
	/*
	 * The dense strides, in elements, that the tensor has in PyTorch: a .pt or DCP has its elements in
	 * that order.  NULL: row-major.  Reading the array is row-major either way.
	 */
	const uint64_t *stride;
	/* If not NULL, @file has at @offset a coded plane of which this array is what it decodes to. */
	const struct tsr_coded *coded;
	/* If not NULL, what a file would have, borrowed: no file holds it. */
	const unsigned char *memory;
	bool has_crc; /* whether the file has a CRC-32 of exactly these bytes; not with a layout */
	uint32_t crc;
	bool own_name; /* @name is the file's own, not found from what was saved around it */
	bool orthogonal; /* as in struct tsr_tensor */
};

/* Which of the files of one packed checkpoint a file is. */
struct tsr_shard {
	uint64_t number, count; /* from 1 on */
	uint64_t set; /* the same in all of them, and hardly in any others */
};

/* A file or directory that was not read. */
struct tsr_not_read {
	const char *path;
	const struct tsr_not_read *next;
};

/* What a delta says of the checkpoint that its planes differ from. */
struct tsr_base_name {
	const char *name; /* as tsr_base_name_is_valid() has it; NULL: it is no delta */
	uint64_t set; /* of the base */
	unsigned depth; /* number of deltas down to a full checkpoint; at least 1 */
};

/* The longest chain of deltas. */
#define TSR_CHAIN_MAX 64u

/* The container with this name; TSR_CONTAINER_COUNT and false if there is none. */
bool tsr_container_find(const char *name, enum tsr_container *ret);

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
	enum tsr_opaque opaque; /* what becomes of Python objects that are no plain values */
	bool left_out; /* something of the input was left out, which a note names */
	bool from_folder; /* a directory whose files were joined was among the inputs */
	bool coded; /* some tensors are in the compressed form of another tool */
	unsigned generation; /* lossy generations so far: 0 for what was never packed */
	/*
	 * Of one safetensors file: where it had its metadata's entries, which are sorted; @nmeta_order
	 * numbers from 0 on, or NULL: as they are, or not known
	 */
	const size_t *meta_order;
	size_t nmeta_order;
	float eps; /* the least that param_groups of its optimizers have; 0: none is known */
	struct tsr_shard shard; /* of the last packed file that was read */
	const char *weights; /* the name of the file beside it that has its weights; NULL: none */
	uint64_t set; /* of a packed one: the hash of all planes, by which a delta names its base */
	struct tsr_base_name base_name; /* of a delta: what it says of its base */
	struct tsr_checkpoint *base; /* and the base, opened; NULL: it is no delta */
	bool replaces_base; /* an output may take the place of the base's file */
	struct tsr_unproven *unproven; /* of a base whose set is not known yet; else NULL */
	size_t *tensor_by_name; /* indices of tensors, sorted by name */
	size_t ntrees;
	struct tsr_value **trees; /* what was saved around the tensors; see src/format/value.h */
	size_t nwrapped; /* tensors in another class than torch.Tensor: DTensors and their like */
	size_t nparts; /* of these, one rank's parts of larger ones */
	const struct tsr_value *part; /* the first of them in the trees */
	size_t nnotes;
	char **notes; /* what a user should know although it is not an error; safe to print */
	uint64_t remarks; /* which of the first 64 are of what is as it should be */
	/* Paths of what was not read of directories, and which notes (of the first 64) say so. */
	const struct tsr_not_read *not_read;
	uint64_t not_read_notes;
	uint64_t names_nbytes; /* that were charged by tsr_build_charge_name() */
	size_t nunchecked; /* records that should have a checksum and have none */
	size_t nunused; /* records of archives that are part of nothing */
	const char *unused; /* the name of one of them */
	bool *rules_matched; /* per rule of the user: whether it matches a name; NULL without rules */
	struct tsr_decoding *decoding; /* what coded arrays are read with; NULL: there are none */
	struct tsr_arena *arena; /* of arrays, metadata, trees and notes */
	struct tsr_arena *factors; /* of those in tensors; NULL: there are none */
	unsigned factor_rank; /* of these */
};

/*
 * @nbytes of an array's data from byte @offset in it, in row-major order and little-endian; whole
 * elements, inside the array.  Every piece of a coded one is compared with its hash in the index:
 * TSR_E_FORMAT names the one that is damaged.  Thread-safe.
 */
enum tsr_status tsr_array_read(const struct tsr_checkpoint *c, const struct tsr_array *a,
			       uint64_t offset, size_t nbytes, void *buf, struct tsr_err *err);

/* The place in @tensor_by_name from which on the first @n bytes of names do not come before @start. */
size_t tsr_checkpoint_from(const struct tsr_checkpoint *c, const char *start, size_t n);

/* The bytes of an array in its file. */
uint64_t tsr_array_stored_nbytes(const struct tsr_array *a);

/* The bytes of all tensors in the files. */
uint64_t tsr_checkpoint_stored_nbytes(const struct tsr_checkpoint *c);

/* Whether two tensors have the same dimensions. */
bool tsr_tensor_same_shape(const struct tsr_tensor *a, const struct tsr_tensor *b);

TSR_OWNED_BY(tsr_checkpoint_close, struct tsr_checkpoint)

#endif
