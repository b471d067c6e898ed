/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding the tiles of a checkpoint, and what that finds of each tensor. */
#ifndef TSR_PACK_ENCODE_TILES_H
#define TSR_PACK_ENCODE_TILES_H

#include "container/writer.h"
#include "pack/walk.h"
#include "tersor/pack.h"

/* What the tiles of a tensor add up to. */
struct tsr_encoded_sums {
	struct tsr_measure measure;
	struct tsr_update_measure update;
};

/* The checkpoint, and where the figures of its tensors go. */
struct tsr_encoding {
	const struct tsr_checkpoint *stored; /* as its files have it */
	const struct tsr_checkpoint *wanted; /* the same, with the codings that are encoded */
	float eps; /* that updates are measured with */
	double bound; /* tsr_adam_bound() of its betas */
	struct tsr_packed_tensor *results; /* per tensor */
	struct tsr_encoded_sums *sums; /* of the tensors that a walk is in the middle of, by side */
	bool *integers; /* per tensor: whether all elements are */
	struct tsr_writer *writer; /* of what is encoded; NULL: only figures are wanted */
	bool *apart; /* per tensor: its first plane is not that of the tensor it was taken for */
};

/*
 * A walk over e->stored that encodes the tensors of e->wanted, and adds up what it finds of them.  @what: the
 * file that a message of cancellation names.
 */
struct tsr_walk tsr_encoding_walk(struct tsr_encoding *e, const char *what);

/* Why the codec of tensor @i cannot hold it, as was found. */
enum tsr_raw_reason tsr_encoded_raw_reason(const struct tsr_encoding *e, size_t i);

#endif
