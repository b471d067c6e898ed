/* SPDX-License-Identifier: Apache-2.0 */
/* The base of a delta that is being written. */
#ifndef TSR_PACK_NEW_DELTA_BASE_H
#define TSR_PACK_NEW_DELTA_BASE_H

#include "ckpt/checkpoint_model.h"

/* Which base a delta has: members of struct tsr_pack_options. */
struct tsr_delta_options {
	const char *path;
	unsigned max_chain, levels;
	bool plain; /* it need not be packed, and is then hashed */
	const struct tsr_open_options *open; /* how it is read */
};

/*
 * Open a base, and name it as a delta to it does; the name lives as long as the base.  TSR_E_LIMIT if the
 * chain would be longer than max_chain.
 */
enum tsr_status tsr_delta_base_open(const struct tsr_delta_options *options,
				    const struct tsr_run *run, struct tsr_checkpoint **ret,
				    struct tsr_base_name *name_ret, struct tsr_err *err);

/* TSR_E_UNSUPPORTED if no tensor of @c can be a difference from a plain base. */
enum tsr_status tsr_delta_base_fits(const struct tsr_checkpoint *base,
				    const struct tsr_checkpoint *c, struct tsr_err *err);

#endif
