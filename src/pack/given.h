/* SPDX-License-Identifier: Apache-2.0 */
/* Packing and unpacking of a checkpoint that is already open: what the commands have in common. */
#ifndef TSR_PACK_GIVEN_H
#define TSR_PACK_GIVEN_H

#include "tersor/pack.h"

/*
 * What the caller has settled.  Tensors with @kept keep the coding that they have (none: raw) and
 * their planes pass as they are; of a packed checkpoint that must be all, and each is checked
 * against its hash.
 */
struct tsr_pack_given {
	size_t n; /* tensors that @kept is about; those that come later are not kept */
	const bool *kept; /* NULL: none is */
	bool named; /* kinds are known; else names and rules tell */
	unsigned generation; /* lossy generations by then, where no tensor is encoded with loss */
};

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
 * tsr_unpack() or, where @lossy is false, tsr_convert() without the opening: @options->open is not
 * used.  @lossy: say in the output how many lossy generations there are.  @c is borrowed as above.
 */
enum tsr_status tsr_write_checkpoint(struct tsr_checkpoint *c, const char *out, bool lossy,
				     const struct tsr_write_options *options,
				     const struct tsr_run *run, struct tsr_unpacking **ret,
				     struct tsr_err *err);

#endif
