/* SPDX-License-Identifier: Apache-2.0 */
/* The base of a delta that is being written. */
#ifndef TSR_PACK_NEW_DELTA_BASE_H
#define TSR_PACK_NEW_DELTA_BASE_H

#include "ckpt/checkpoint_model.h"
#include "tersor/pack.h"

/*
 * Open the base that options name, and name it as a delta to it does; the name lives as long as the base.
 * @plain: it need not be packed, and is then hashed.  TSR_E_LIMIT if the chain would be longer than
 * max_chain.
 */
enum tsr_status tsr_delta_base_open(const struct tsr_pack_options *options, bool plain,
				    const struct tsr_run *run, struct tsr_checkpoint **ret,
				    struct tsr_base_name *name_ret, struct tsr_err *err);

/* TSR_E_UNSUPPORTED if no tensor of @c can be a difference from a plain base. */
enum tsr_status tsr_delta_base_fits(const struct tsr_checkpoint *base,
				    const struct tsr_checkpoint *c, struct tsr_err *err);

#endif
