/* SPDX-License-Identifier: Apache-2.0 */
/* Which coding each tensor is packed in. */
#ifndef TSR_PACK_CODEC_RULES_H
#define TSR_PACK_CODEC_RULES_H

#include "ckpt/checkpoint_model.h"
#include "pack/open_checkpoint.h"

/* Give a tensor the coding of its kind, or none if it stays raw, which may have a reason. */
void tsr_pack_choose(const struct tsr_pack_options *o, struct tsr_tensor *t,
		     struct tsr_packed_tensor *r);

/* Whether all @n elements are integers that FP32 counts to without a gap. */
bool tsr_pack_all_integers(const float *x, uint64_t n);

/* Why a tensor whose encoding was measured stays raw; @integers: all its elements are. */
enum tsr_raw_reason tsr_pack_raw_reason(const struct tsr_tensor *t,
					const struct tsr_packed_tensor *r, bool integers);

/*
 * Give a tensor a coding, or none, as it is for its name, shape and kind: what a codec without groups or
 * random bits does not need is left out of it.
 */
void tsr_pack_give(struct tsr_tensor *t, const struct tsr_coding *coding);

/*
 * Once all are chosen: momenta in a relative codec whose variance is not there get the one that is used
 * without, which a note says.  Those that are kept have their coding already.
 */
enum tsr_status tsr_pack_check_ratios(const struct tsr_pack_options *o, struct tsr_checkpoint *c,
				      const struct tsr_pack_given *given, struct tsr_err *err);

/*
 * If a tensor's codec is relative, give it the one that is used without a variance; whether it was.
 */
bool tsr_pack_drop_ratios(const struct tsr_pack_options *o, struct tsr_tensor *t);

/* Note that @n tensors, of which @first is one, have that other codec. */
enum tsr_status tsr_pack_note_ratios(struct tsr_checkpoint *c, const struct tsr_tensor *first,
				     size_t n, struct tsr_err *err);

/* Note which states come from another tool's compressed form, which no output has again. */
enum tsr_status tsr_pack_note_decoded(struct tsr_checkpoint *c, struct tsr_err *err);

#endif
