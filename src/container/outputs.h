/* SPDX-License-Identifier: Apache-2.0 */
/* The files of one output, published together: one file, shards, a packed pair, or a directory. */
#ifndef TSR_CONTAINER_OUTPUTS_H
#define TSR_CONTAINER_OUTPUTS_H

#include "io/atomic_dir.h"
#include "parts/part.h"
#include "text/text.h"
#include "ckpt/checkpoint_model.h"

struct tsr_outputs {
	const char *path; /* that the user gave */
	bool force;
	const char *index; /* of a directory: its index, which tells what it is; else NULL */
	struct tsr_outdir *dir; /* the directory, once created */
	size_t n; /* files that hold tensors: 1, the shards, or a file of weights and the rest */
	bool indexed; /* they are shards */
	struct tsr_arena *arena; /* has what these lists are */
	const char **paths; /* of the n files, then of the index of shards; in a directory, names */
	struct tsr_outfile **files; /* once created, n of them */
	size_t nold;
	const char **old; /* shards of the index that will be replaced */
	const struct tsr_checkpoint *replaced; /* the input whose files they are; or NULL */
	struct tsr_parts *part; /* who write the files together, or are joined; or NULL */
};

/*
 * Decide on names: @path itself for one file, else NAME-00001-of-0000n.safetensors beside it and
 * NAME.safetensors.index.json.  Several files cannot be replaced at once, so @force does not replace
 * shards: the new ones are named NAME-r2-00001-of-0000n (or -r3 and so on), then the index is replaced,
 * and only then are the shards of the old index removed, whose permissions the new ones have.
 */
enum tsr_status tsr_outputs_plan(struct tsr_outputs *o, const char *path, bool force, size_t n,
				 struct tsr_err *err);

/* The same for shards and their index, even if there is one. */
enum tsr_status tsr_outputs_plan_shards(struct tsr_outputs *o, const char *path, bool force,
					size_t n, struct tsr_err *err);

/* A directory @path of the files @names, which live as long, and of @index, which is published last. */
enum tsr_status tsr_outputs_plan_directory(struct tsr_outputs *o, const char *path, bool force,
					   const char *index, const char *const *names, size_t n,
					   struct tsr_err *err);

/*
 * Two files in this order: @weights, which is in the directory of @path under another name, and @path.
 * They cannot be replaced at once, so @force does not apply.
 */
enum tsr_status tsr_outputs_plan_pair(struct tsr_outputs *o, const char *path, const char *weights,
				      bool force, struct tsr_err *err);

/* Whether the files could be created now, and none of them is an input. */
enum tsr_status tsr_outputs_check(struct tsr_outputs *o, const struct tsr_checkpoint *inputs,
				  struct tsr_err *err);

/*
 * Start all files; @nbytes is the size of each.  @part: NULL, or the parts that write them together or are
 * joined now.
 */
enum tsr_status tsr_outputs_create(struct tsr_outputs *o, const uint64_t *nbytes,
				   struct tsr_parts *part, struct tsr_err *err);

/*
 * What who joined the parts put in place, and failed later: files that are @shared by the parts have their
 * names in the making again, unless those are taken; what is left of them is removed.
 */
enum tsr_status tsr_outputs_take_back(const struct tsr_outputs *o, const struct tsr_parts *part,
				      bool shared, struct tsr_err *err);

/* Sync the files of parts and leave them to the others. */
enum tsr_status tsr_outputs_leave(struct tsr_outputs *o, struct tsr_err *err);

/*
 * Publish every file, the index @index (NULL: none) last.  After a failure nothing is left;
 * TSR_E_DURABILITY as in tsr_outfile_publish().
 */
enum tsr_status tsr_outputs_publish(struct tsr_outputs *o, const struct tsr_text *index,
				    struct tsr_err *err);

/* Discard what was not published, and free everything in @o. */
void tsr_outputs_free(struct tsr_outputs *o);

/* The name of file @i, without its directory. */
const char *tsr_outputs_name(const struct tsr_outputs *o, size_t i);

#endif
