/* SPDX-License-Identifier: Apache-2.0 */
/* Packing, unpacking and converting a checkpoint that is already open. */
#ifndef TSR_PACK_OPEN_CHECKPOINT_H
#define TSR_PACK_OPEN_CHECKPOINT_H

#include "tersor/pack.h"

/*
 * What is decided before packing.  Tensors with @kept keep the coding that they have (none: raw) and
 * their planes are copied.  In a packed checkpoint all tensors must be kept, and each is checked
 * against its hashes.
 */
struct tsr_pack_given {
	size_t n; /* tensors that @kept is about; later ones are not kept */
	const bool *kept; /* NULL: none is */
	bool named; /* kinds are known; otherwise names and rules decide */
	bool plain_base; /* the base of a delta need not be packed */
	unsigned generation; /* lossy generations so far, if no tensor is encoded with loss now */
};

/* Whether a tensor keeps the coding that it has. */
static inline bool tsr_pack_is_kept(const struct tsr_pack_given *given, size_t tensor)
{
	return given->kept && tensor < given->n && given->kept[tensor];
}

/*
 * tsr_pack() without the opening: @options->open is not used.  @c is borrowed and becomes
 * @ret->source, which the caller takes back (sets to NULL) before tsr_packing_free().  Its
 * `generation` is that of the values that are still to be encoded.
 */
enum tsr_status tsr_pack_checkpoint(struct tsr_checkpoint *c, const struct tsr_pack_given *given,
				    const char *out, const struct tsr_pack_options *options,
				    const struct tsr_run *run, struct tsr_packing **ret,
				    struct tsr_err *err);

/*
 * tsr_unpack() and tsr_convert() without the opening: @options->open is not used and @c is borrowed as
 * above.  The output says how many lossy generations there are, @c->generation.
 */
enum tsr_status tsr_write_checkpoint(struct tsr_checkpoint *c, const char *out,
				     const struct tsr_write_options *options,
				     const struct tsr_run *run, struct tsr_unpacking **ret,
				     struct tsr_err *err);

/* tsr_recode() without the opening: @c is packed, and becomes @ret's on TSR_OK and TSR_E_DURABILITY. */
enum tsr_status tsr_recode_checkpoint(struct tsr_checkpoint *c, const char *out,
				      const struct tsr_recode_options *options,
				      const struct tsr_run *run, struct tsr_unpacking **ret,
				      struct tsr_err *err);

#endif
