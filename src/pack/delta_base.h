/* SPDX-License-Identifier: Apache-2.0 */
/* The base of a delta that is to be written. */
#ifndef TSR_PACK_DELTA_BASE_H
#define TSR_PACK_DELTA_BASE_H

#include "ckpt/checkpoint_model.h"

/*
 * Open the checkpoint at @path for a base, and say what a delta to it says; @options: how inputs are read;
 * @plain: it need not be packed, and is then hashed on the threads of @run.  TSR_E_LIMIT if the chain gets
 * longer than @max_chain, 0: TSR_CHAIN_DEFAULT.
 */
enum tsr_status tsr_delta_base_open(const char *path, unsigned max_chain, bool plain,
				    const struct tsr_open_options *options,
				    const struct tsr_run *run, struct tsr_checkpoint **ret,
				    struct tsr_base_name *name_ret, struct tsr_err *err);

/* TSR_E_UNSUPPORTED if no tensor of @c can be a difference from a plain base. */
enum tsr_status tsr_delta_base_fits(const struct tsr_checkpoint *base,
				    const struct tsr_checkpoint *c, struct tsr_err *err);

#endif
