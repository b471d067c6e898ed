/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding the tiles of a checkpoint, and what that finds of each tensor. */
#ifndef TSR_PACK_ENCODE_TILES_H
#define TSR_PACK_ENCODE_TILES_H

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
	bool *apart; /* per tensor: its first plane is not that of the tensor it was taken for */
};

/* What encoding a tile found, as a walk has it. */
struct tsr_encoded {
	struct tsr_measure measure;
	struct tsr_encode_report report;
	struct tsr_update_measure update; /* of a variance with its momentum */
	struct tsr_breach breach; /* likewise */
	uint32_t integers; /* all elements are */
	uint32_t apart;
};

/* The `work` and `work_pair` of a walk over e->stored that wants the tensors of e->wanted. */
enum tsr_status tsr_encode_tile(const struct tsr_encoding *e, const struct tsr_walked *t,
				struct tsr_err *err);
enum tsr_status tsr_encode_pair(const struct tsr_encoding *e, const struct tsr_walked *const t[2],
				struct tsr_err *err);

/* Its `commit`: the figures of a tile, added to those of its tensor. */
void tsr_encoded_add(const struct tsr_encoding *e, const struct tsr_walked *t);

/* Why the codec of tensor @i cannot hold it, as was found. */
enum tsr_raw_reason tsr_encoded_raw_reason(const struct tsr_encoding *e, size_t i);

#endif
