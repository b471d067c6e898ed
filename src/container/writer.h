/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a list of arrays into a container: laid out beforehand, put in any order, then published. */
#ifndef TSR_CONTAINER_WRITER_H
#define TSR_CONTAINER_WRITER_H

#include "base/scope.h"
#include "format/safetensors.h"
#include "ckpt/checkpoint_model.h"
#include "tersor/pack.h"

/* The tag of a stored array: plane @plane of tensor @tensor, or the whole tensor. */
#define TSR_ARRAY_TAG(tensor, plane) ((tensor)*TSR_PLANES_MAX + (plane))
#define TSR_TAG_TENSOR(tag) ((tag) / TSR_PLANES_MAX)
#define TSR_TAG_PLANE(tag) ((unsigned)((tag) % TSR_PLANES_MAX))

struct tsr_packed_source;

/* A tensor as one array, in its own dtype. */
struct tsr_st_entry tsr_stored_array(const struct tsr_tensor *t, size_t tag);

/**
 * struct tsr_writer_plan - What to write; everything is borrowed
 * @container: of the output
 * @max_shard_nbytes: of a file, for safetensors and DCP; 0: as much as there is.  The planes of a tensor stay
 *          together.  A header over the limits of readers makes several files in any case, and a note
 * @like:   NULL, or a model in shards: the output has its tensors in the same ones (shards/shard_cut.h)
 * @c:      the source: its files are not overwritten, and .pt gets what it has around its tensors
 * @arrays: @narrays arrays; their tags are TSR_ARRAY_TAG() of a tensor of @c and a plane
 * @keep_order: arrays stay in this order, not that of the safetensors reference
 * @meta:   @nmeta entries for safetensors files, sorted
 * @generation: lossy generations, for a container without metadata; 0: none
 * @packed: NULL, or what the header of a packed file says besides
 * @coded:  for a packed file: which of its planes are coded, before it is published
 * @base:   NULL, or what coded planes may differ from
 * @run:    the threads that do so
 * @part:   NULL, or what is written in parts
 * @weights_path: NULL, or for a packed file: the plain file beside it that has its weights
 * @weights_meta: @nweights_meta entries for that file, sorted
 */
struct tsr_writer_plan {
	const char *path;
	enum tsr_container container;
	bool force;
	uint64_t max_shard_nbytes;
	const struct tsr_checkpoint *like;
	struct tsr_checkpoint *c;
	const struct tsr_st_entry *arrays;
	size_t narrays;
	bool keep_order;
	const struct tsr_meta *meta;
	size_t nmeta;
	unsigned generation;
	const struct tsr_packed_source *packed;
	enum tsr_coded_planes coded;
	const struct tsr_checkpoint *base;
	const struct tsr_run *run;
	struct tsr_parts *part;
	const char *weights_path;
	const struct tsr_meta *weights_meta;
	size_t nweights_meta;
};

struct tsr_writer;

/* Lay everything out; nothing is created yet.  Free with tsr_writer_free(). */
enum tsr_status tsr_writer_new(const struct tsr_writer_plan *plan, struct tsr_writer **ret,
			       struct tsr_err *err);

/* Bytes of all files together, and of the arrays in them. */
uint64_t tsr_writer_nbytes(const struct tsr_writer *w);
uint64_t tsr_writer_data_nbytes(const struct tsr_writer *w);

/* What one file begins with; NULL: there are more, or it is an archive. */
const struct tsr_text *tsr_writer_header(const struct tsr_writer *w);

/* Of the @n tensors of the source, the bytes of their arrays. */
void tsr_writer_tensor_nbytes(const struct tsr_writer *w, size_t n, uint64_t *nbytes);

/* A plane of a tensor as it was written. */
struct tsr_written_plane {
	uint64_t nbytes; /* 0: another tensor has it */
	bool differs; /* some of its pieces are what differs from a base */
};

/* The planes of the @n tensors of the source, TSR_PLANES_MAX of each. */
void tsr_writer_planes(const struct tsr_writer *w, size_t n, struct tsr_written_plane *planes);

/* Whether the files could be created: for a dry run, with the notes that writing them gives. */
enum tsr_status tsr_writer_check(struct tsr_writer *w, struct tsr_err *err);

enum tsr_status tsr_writer_create(struct tsr_writer *w, struct tsr_err *err);

/* Write @nbytes of the array with this tag, from byte @offset of it on; one thread at a time. */
enum tsr_status tsr_writer_put(const struct tsr_writer *w, size_t tag, const void *bytes,
			       size_t nbytes, uint64_t offset, struct tsr_err *err);

/*
 * What tsr_writer_commit() needs of some bytes of the array with this tag, from byte @offset of it on, if the
 * container has checksums, else 0.  Thread-safe.
 */
enum tsr_status tsr_writer_sum(const struct tsr_writer *w, size_t tag, const void *bytes,
			       size_t nbytes, uint64_t offset, uint32_t *ret, struct tsr_err *err);

/* Add the next @nbytes of an array, whose tsr_writer_sum() is @crc, to its checksum; in order. */
void tsr_writer_commit(struct tsr_writer *w, size_t tag, uint64_t nbytes, uint32_t crc);

/*
 * In place of tsr_writer_create() and tsr_writer_put(), of a packed file: write the planes of the checkpoint,
 * which has them all, as the plan wants them.  They are checked against their hashes.
 */
enum tsr_status tsr_writer_copy(struct tsr_writer *w, struct tsr_err *err);

/* After the last tsr_writer_put(): of a part, sync the files, report and end with TSR_PART_DONE. */
enum tsr_status tsr_writer_end_part(struct tsr_writer *w, struct tsr_err *err);

/* Write headers and directories, then publish.  The header of a packed file says what @packed says now. */
enum tsr_status tsr_writer_publish(struct tsr_writer *w, struct tsr_err *err);
void tsr_writer_free(struct tsr_writer *w);
TSR_OWNED_BY(tsr_writer_free, struct tsr_writer)

#endif
