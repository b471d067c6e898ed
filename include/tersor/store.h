/* SPDX-License-Identifier: Apache-2.0 */
/* A store: the checkpoints of a run in one directory, each as exact as it needs to be. */
#ifndef TERSOR_STORE_H
#define TERSOR_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tersor/api.h"
#include "tersor/run.h"
#include "tersor/status.h"

/* The most versions of a block of weights down to one that is decoded by itself. */
#define TSR_STORE_CHAIN_MAX 8u

/* How the training state of a snapshot is stored. */
enum tsr_store_as {
	TSR_STORE_LOSSLESS, /* every bit of every file */
	TSR_STORE_CODES, /* the codes of tsr_pack_defaults() */
	TSR_STORE_BOUNDS, /* as coarse as the bounds allow */
};

/**
 * struct tsr_store_tier - How much of a checkpoint's training state is kept
 * @name:     "lossless", "exact", "1e-3", "1e-2", "trace", or "bounds" for any others
 * @weight:   bound on the error of weights over their displacement since the snapshot before, as it comes
 *            back, sum (y - x)^2 / sum (x - last)^2; without a snapshot before they have pack's codes
 * @update:   bound on the error of the update u = m / (sqrt(v) + eps), sum (u' - u)^2 / sum u^2
 * @variance: bound on the error of roots of variances, sum (r' - r)^2 / sum r^2
 *
 * Bounds are of each block of at most 262,144 elements, and so of each tensor and all of them
 * (docs/internals/format.md, section 19.1).  Only FP32 weights, momenta and variances of an optimizer
 * that has both are stored by bounds; everything else comes back with its bits.
 */
struct tsr_store_tier {
	char name[12];
	enum tsr_store_as as;
	double weight, update, variance;
};

/* The tiers that have names; NULL past the end. */
TSR_API const struct tsr_store_tier *tsr_store_tiers(size_t index);
TSR_API bool tsr_store_tier_find(const char *name, struct tsr_store_tier *ret);

/* Whether @a is coarser than @b in nothing, and finer in something. */
TSR_API bool tsr_store_tier_is_finer(const struct tsr_store_tier *a,
				     const struct tsr_store_tier *b);

/*
 * What was lost, found by decoding: of the tensor that lost most.  Negative: there is nothing of this kind.
 * After thinning, at most the error of the version that was thinned and that of thinning together.
 */
struct tsr_store_errors {
	double weight; /* over the displacement; of weights that are steps */
	double weight_ulps; /* root mean square, over that of the distances of BF16 numbers there */
	double update, variance; /* as in struct tsr_store_tier */
};

/* A snapshot.  Texts live as long as the store is open. */
struct tsr_snapshot_info {
	uint64_t step;
	const char *name; /* "" without one */
	struct tsr_store_tier tier;
	struct tsr_store_errors errors;
	uint64_t nfiles, nbytes; /* of the checkpoint */
	uint64_t nparameters; /* FP32 weights */
	uint64_t alone_nbytes; /* of objects that only this snapshot needs */
	uint64_t shared_nbytes; /* of those that others need, too */
	unsigned depth; /* the longest chain of versions */
};

/* A store, open.  Not for several threads at once; several processes may each have it open. */
struct tsr_store;

/* What a store is opened for. */
enum tsr_store_mode {
	TSR_STORE_READ, /* beside others that read or add; on a read-only file system, too */
	TSR_STORE_ADD, /* the same; makes the directory if it is absent or empty */
	TSR_STORE_CHANGE, /* alone: to remove what is not needed */
};

/**
 * tsr_store_open() - Open a store
 * @path: its directory
 * @ret:  out: to be closed with tsr_store_close()
 *
 * A snapshot that is damaged is left out, and tsr_store_note() says so.
 *
 * Return: TSR_OK; TSR_E_IO if another process uses it in a way that excludes this one; TSR_E_FORMAT if it is
 * no store; TSR_E_NOMEM.
 */
TSR_API enum tsr_status tsr_store_open(const char *path, enum tsr_store_mode mode,
				       struct tsr_store **ret, struct tsr_err *err);
TSR_API void tsr_store_close(struct tsr_store *s);

/* Snapshots in the order of their steps; NULL past the end. */
TSR_API const struct tsr_snapshot_info *tsr_store_snapshot(const struct tsr_store *s, size_t index);

/* What is wrong with snapshots, found in opening: lines to print; NULL past the end. */
TSR_API const char *tsr_store_note(const struct tsr_store *s, size_t index);

/* Bytes of all objects, and of those that no snapshot needs. */
TSR_API uint64_t tsr_store_nbytes(const struct tsr_store *s, uint64_t *unused_ret);

/**
 * struct tsr_store_add_options - What to add
 * @step: of the snapshot, which no other one has
 * @name: at most 255 bytes of UTF-8 without control characters; NULL: none
 * @tier: how it is stored
 * @follow: files of the checkpoint may be symbolic links
 */
struct tsr_store_add_options {
	size_t size; /* of this struct: set by tsr_store_add_defaults() */
	uint64_t step;
	const char *name;
	struct tsr_store_tier tier;
	bool follow;
};

TSR_API struct tsr_store_add_options tsr_store_add_defaults(void);

/* What became of a checkpoint that was added. */
struct tsr_store_added {
	struct tsr_snapshot_info info;
	uint64_t new_nbytes; /* of objects that the store did not have */
	uint64_t nlossy, nother; /* bytes of the checkpoint that its tier is about, and others */
	uint64_t nobjects;
	bool has_note; /* the tensors of it could not be found, which @note says: all is lossless */
	char note[TSR_ERR_MAX];
};

/**
 * tsr_store_add() - Add a checkpoint: a file or a directory
 * @run: threads and progress; NULL: the calling thread only
 * @ret: out: set on TSR_OK
 *
 * The snapshot appears when all of it is on the disk.  Memory does not depend on the checkpoint's size.
 *
 * Return: TSR_OK; TSR_E_USAGE if there is a snapshot of this step; TSR_E_IO; TSR_E_NOMEM; TSR_E_CANCELLED.
 */
TSR_API enum tsr_status tsr_store_add(struct tsr_store *s, const char *checkpoint,
				      const struct tsr_store_add_options *options,
				      const struct tsr_run *run, struct tsr_store_added *ret,
				      struct tsr_err *err);

/**
 * tsr_store_get() - Write a checkpoint again: the file or directory as it was
 * @step: of the snapshot
 * @out:  the path; absent before, unless @force
 *
 * Names, permissions and bytes are those of the checkpoint, but for the elements that its tier is about and
 * the CRC-32 of zip members that hold them.
 */
TSR_API enum tsr_status tsr_store_get(struct tsr_store *s, uint64_t step, const char *out,
				      bool force, const struct tsr_run *run, struct tsr_err *err);

/* What is wrong with a store: @what was damaged, and the first snapshot that needs it. */
typedef void tsr_store_fault(void *ctx, const char *what);

/*
 * Read every object and compare it with its hash; every snapshot must have all that it needs.  TSR_E_FORMAT
 * if something is damaged or missing, after @fault, which may be NULL, was told of each such thing.
 */
TSR_API enum tsr_status tsr_store_verify(struct tsr_store *s, const struct tsr_run *run,
					 tsr_store_fault *fault, void *ctx, struct tsr_err *err);

/* A tensor in two snapshots. */
struct tsr_store_difference {
	const char *name;
	uint64_t nelements, nother; /* elements, and those with other values */
	double rms, moved; /* root mean square of the first; of the differences */
};

/*
 * Compare the FP32 weights, momenta and variances of two snapshots: @found is called for each tensor that
 * both have and that differs.
 */
typedef void tsr_store_found(void *ctx, const struct tsr_store_difference *d);
struct tsr_store_compared {
	uint64_t ntensors, nother; /* tensors in both, and those of them that differ */
	uint64_t nfiles,
		nother_files; /* files in both, and those with other bytes around these tensors */
	uint64_t nonly; /* tensors and files that one of them has */
};
TSR_API enum tsr_status tsr_store_diff(struct tsr_store *s, uint64_t a, uint64_t b,
				       const struct tsr_run *run, tsr_store_found *found, void *ctx,
				       struct tsr_store_compared *ret, struct tsr_err *err);

/* Which snapshots a rule is about. */
enum tsr_store_which {
	TSR_STORE_LAST, /* the last @n */
	TSR_STORE_EVERY, /* those whose step is a multiple of @n */
	TSR_STORE_OLDER, /* more than @n steps before the last one */
	TSR_STORE_STEP, /* that of step @n */
	TSR_STORE_REST, /* all */
};

/* What becomes of snapshots: the first rule that is about one decides; without one it stays. */
struct tsr_store_rule {
	enum tsr_store_which which;
	uint64_t n;
	bool drop;
	struct tsr_store_tier tier;
};

/* What thinning does to a snapshot. */
enum tsr_store_change { TSR_STORE_KEPT, TSR_STORE_RECODED, TSR_STORE_DROPPED };

typedef void tsr_store_thinned(void *ctx, const struct tsr_snapshot_info *before,
			       enum tsr_store_change change, const struct tsr_store_tier *tier);

/**
 * tsr_store_thin() - Store snapshots coarser, drop some, and remove what no snapshot needs
 * @rules: @nrules rules; none: only what no snapshot needs is removed
 * @told:  called for each snapshot in the order of steps, before anything is changed; may be NULL
 * @dry_run: nothing is changed; *freed_ret is what dropping frees, without what storing coarser does
 *
 * Interrupted anywhere, each snapshot is its old or its new version.  A snapshot never becomes finer.
 */
TSR_API enum tsr_status tsr_store_thin(struct tsr_store *s, const struct tsr_store_rule *rules,
				       unsigned nrules, bool dry_run, const struct tsr_run *run,
				       tsr_store_thinned *told, void *ctx, uint64_t *freed_ret,
				       struct tsr_err *err);

#endif
