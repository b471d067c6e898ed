/* SPDX-License-Identifier: Apache-2.0 */
/* What an open store and a snapshot consist of. */
#ifndef TSR_STORE_STORE_DATA_H
#define TSR_STORE_STORE_DATA_H

#include <inttypes.h>

#include "base/scope.h"
#include "base/arena.h"
#include "store/block_code.h"

/* A file or directory of a checkpoint. */
struct tsr_stored_path {
	const char *path; /* below the checkpoint; of a single file, its name */
	bool is_directory;
	unsigned mode;
	uint64_t nbytes;
	uint64_t rest_nbytes; /* of what no tensor's range has */
	struct tsr_object_id *rest; /* tsr_entropy_pieces() of these */
	/* CRC-32s that it has of bytes that change: where each is, and of which bytes it is. */
	size_t ncrcs;
	struct tsr_stored_crc {
		uint64_t at, offset, nbytes;
	} * crcs;
	/* The ranges in it, by offset, each with the rest before it. */
	size_t nranges;
	struct tsr_stored_range {
		uint64_t offset, nbytes, rest;
	} * ranges;
};

/* Elements of one tensor, or of a momentum and its variance, that are consecutive in their files. */
struct tsr_stored_tensor {
	const char *name[TSR_SLOTS];
	unsigned chunk; /* of those that these tensors are cut into */
	unsigned slots;
	enum tsr_kind kind[TSR_SLOTS];
	enum tsr_dtype dtype;
	uint32_t file[TSR_SLOTS];
	uint64_t offset[TSR_SLOTS];
	uint64_t n;
	uint32_t columns, phase; /* as in struct tsr_block */
	struct tsr_object_id *objects; /* tsr_entropy_pieces(n) of them */
};

struct tsr_snapshot {
	struct tsr_snapshot_info info;
	bool is_file; /* the checkpoint is one file, no directory */
	float eps;
	size_t npaths, ntensors, nneeds;
	struct tsr_stored_path *paths;
	struct tsr_stored_tensor *tensors;
	struct tsr_object_id *needs; /* earlier versions that its objects are decoded with */
};

/* An object that snapshots need or the store has. */
struct tsr_known_object {
	struct tsr_object_id id;
	uint64_t nbytes;
	size_t first, last; /* which snapshots need it, from 1 on; 0: none does */
};

struct tsr_store {
	char *path;
	int lock;
	struct tsr_arena *arena;
	size_t nsnapshots;
	struct tsr_snapshot *snapshots;
	size_t nobjects;
	struct tsr_known_object *objects; /* sorted by id */
	size_t nnotes;
	char **notes; /* what is wrong with snapshots */
	bool lacks; /* a snapshot could not be read: what it needs is not known */
	char *marker; /* a file that says that objects are being added; NULL: none are */
};

/* What @info.step has the snapshot of, or NULL. */
struct tsr_snapshot *tsr_store_find(const struct tsr_store *s, uint64_t step);

/* The block number @piece of a tensor. */
struct tsr_block_of tsr_stored_block(const struct tsr_stored_tensor *t, uint64_t piece);

/* A block of a snapshot: number @piece of tensor number @item, or with @rest of the rest of a file. */
struct tsr_block_job {
	uint32_t item, piece;
	bool rest;
};

/*
 * All blocks of a snapshot, to be freed: without those of tensors that @keep says, unless it is NULL, and
 * without those of rests unless @rests.
 */
enum tsr_status tsr_block_jobs(const struct tsr_snapshot *s, const bool *keep, bool rests,
			       struct tsr_block_job **ret, size_t *n_ret, struct tsr_err *err);
struct tsr_block_of tsr_job_block(const struct tsr_snapshot *s, const struct tsr_block_job *job);

/* Where its object is named. */
struct tsr_object_id *tsr_job_object(const struct tsr_snapshot *s, const struct tsr_block_job *job);

/* --- Objects (objects.c) ---------------------------------------------------------------------- */

/* An id in hexadecimal digits. */
#define TSR_OBJECT_DIGITS 32u

struct tsr_object_text {
	char text[TSR_OBJECT_DIGITS + 1];
};

struct tsr_object_text tsr_object_text(const struct tsr_object_id *id);
bool tsr_object_parse(const char *text, struct tsr_object_id *ret);
struct tsr_object_id tsr_object_name(const void *bytes, size_t nbytes);

static inline bool tsr_object_is(const struct tsr_object_id *a, const struct tsr_object_id *b)
{
	return a->low == b->low && a->high == b->high;
}

/* Write an object unless the store has it.  Thread-safe.  *is_new says whether it was written. */
enum tsr_status tsr_object_put(const struct tsr_store *s, const struct tsr_object_id *id,
			       const void *bytes, size_t nbytes, bool *is_new, struct tsr_err *err);

/* Read an object, at most TSR_OBJECT_MAX, and compare it with its name.  Thread-safe. */
enum tsr_status tsr_object_get(const struct tsr_store *s, const struct tsr_object_id *id,
			       uint8_t *bytes, size_t *nbytes_ret, struct tsr_err *err);

/* Memory to read objects with, and what the last one holds. */
struct tsr_object_reader {
	struct tsr_block_coder *coder;
	uint8_t *bytes; /* room for TSR_OBJECT_MAX */
	void *y[TSR_SLOTS]; /* its elements, each room for a block of any type */
	float *version[2]; /* of weights, each room for a block */
	unsigned nchain; /* what the last one was decoded with, itself the first */
	struct tsr_object_id chain[TSR_STORE_CHAIN_MAX + 1];
	/*
	 * Of a reader that is asked for them: versions that a new one can be steps from, and where they are
	 * in the chain.  Behind the longest chain these are the one before the last, and one in the middle.
	 */
	float *base[2];
	unsigned base_at[2];
};
enum tsr_status tsr_object_reader_open(struct tsr_object_reader *r, bool with_bases,
				       struct tsr_err *err);
void tsr_object_reader_close(struct tsr_object_reader *r);

/* Decode what an object holds, and of weights the versions before it, to @r->y. */
enum tsr_status tsr_object_read(const struct tsr_store *s, struct tsr_object_reader *r,
				const struct tsr_object_id *id, const struct tsr_block_of *of,
				struct tsr_err *err);

/* List the objects of the store: @s->objects, without what needs them; find one of them, or NULL. */
enum tsr_status tsr_objects_list(struct tsr_store *s, struct tsr_err *err);
struct tsr_known_object *tsr_objects_find(const struct tsr_store *s,
					  const struct tsr_object_id *id);

/* Remove one, and what processes that were killed left. */
enum tsr_status tsr_object_remove(const struct tsr_store *s, const struct tsr_object_id *id,
				  struct tsr_err *err);

/* Have all that was written on the disk. */
enum tsr_status tsr_objects_sync(const struct tsr_store *s, struct tsr_err *err);

/* A path in the store, to be freed. */
enum tsr_status tsr_store_path(const struct tsr_store *s, char **ret, struct tsr_err *err,
			       const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* That of the file of a snapshot. */
#define TSR_SNAPSHOT_PATH TSR_SNAPSHOTS "/%015" PRIu64 ".json"

/* --- Snapshots (snapshot_write.c, snapshot_read.c) -------------------------------------------- */

#define TSR_SNAPSHOTS "snapshots"

/* Write a snapshot, with @force in the place of the one of its step. */
enum tsr_status tsr_snapshot_write(const struct tsr_store *s, const struct tsr_snapshot *snapshot,
				   bool force, struct tsr_err *err);

/* Read the file @name of the store into @ret, whose memory is of the arena. */
enum tsr_status tsr_snapshot_read(const struct tsr_store *s, const char *name,
				  struct tsr_snapshot *ret, struct tsr_err *err);

/* --- The store (store.c) ---------------------------------------------------------------------- */

/* Read all snapshots and list all objects anew. */
enum tsr_status tsr_store_load(struct tsr_store *s, struct tsr_err *err);

/* TSR_E_FORMAT if a snapshot could not be read: nothing can be removed then. */
enum tsr_status tsr_store_check_whole(const struct tsr_store *s, struct tsr_err *err);

/* Remove objects that no snapshot needs. */
enum tsr_status tsr_store_sweep(struct tsr_store *s, uint64_t *freed_ret, struct tsr_err *err);

/* Begin and end to add objects.  Unless it is @done, or after a kill, the next process sweeps. */
enum tsr_status tsr_store_begin(struct tsr_store *s, struct tsr_err *err);
void tsr_store_end(struct tsr_store *s, bool done);

TSR_OWNED_BY(tsr_store_close, struct tsr_store)

#endif
