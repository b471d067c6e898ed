/* SPDX-License-Identifier: Apache-2.0 */
/* What goes where in the packed file, or files. */
#ifndef TSR_PACK_PLAN_H
#define TSR_PACK_PLAN_H

#include "format/safetensors.h"
#include "container/outputs.h"
#include "ckpt/checkpoint_model.h"

/* A run of source tensors that one file has: each file of a plan is a packed file by itself. */
struct tsr_pack_shard {
	size_t first, end; /* source tensors */
	size_t first_entry, end_entry;
	uint64_t header_nbytes, json_nbytes; /* room for the header, and for its text */
	uint64_t data_nbytes;
};

/* What an entry of the output cannot borrow from its source tensor. */
struct tsr_pack_own {
	char *name; /* of a plane that has a suffix */
	uint64_t count; /* the one dimension of a plane that is not shaped like its tensor */
};

struct tsr_pack_plan {
	struct tsr_checkpoint *c; /* the source; its tensors have the codings to be used */
	const char *path;
	bool force;
	uint64_t max_shard_nbytes;
	size_t nentries;
	struct tsr_st_entry *entries; /* the arrays of the output, in their order */
	struct tsr_pack_own *own; /* per entry, in the order of tensors */
	uint64_t (*offset)[TSR_PLANES_MAX]; /* of each tensor's planes in its file */
	uint64_t *nbytes; /* per tensor, over its planes */
	size_t *shard_of; /* per tensor */
	size_t nshards;
	struct tsr_pack_shard *shards;
	struct tsr_outputs outputs;
	struct tsr_text index;
	struct tsr_meta *meta; /* of the output; borrows all but two values */
	size_t nmeta;
};

/*
 * Plan for the codings that the source's tensors have now.  @plan has its first four members set;
 * what it held of an earlier plan is dropped.
 */
enum tsr_status tsr_pack_plan_make(struct tsr_pack_plan *plan, struct tsr_err *err);

/* Bytes of the headers and of the data over all files. */
uint64_t tsr_pack_plan_header_nbytes(const struct tsr_pack_plan *plan);
uint64_t tsr_pack_plan_data_nbytes(const struct tsr_pack_plan *plan);

enum tsr_status tsr_pack_plan_create(struct tsr_pack_plan *plan, struct tsr_err *err);

/* Write the headers with the figures that the source's tensors have now. */
enum tsr_status tsr_pack_plan_write_headers(struct tsr_pack_plan *plan, unsigned generation,
					    struct tsr_err *err);

/* Free everything that was planned, and discard files that were not published. */
void tsr_pack_plan_drop(struct tsr_pack_plan *plan);

#endif
