/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the compressed optimizer states of other tools, as tensors that decode to FP32. */
#ifndef TSR_NAMES_IMPORT_STATES_H
#define TSR_NAMES_IMPORT_STATES_H

#include "ckpt/build.h"

/*
 * Make tensors of arrays.  Compressed states of FlashOptim, bitsandbytes and TransformerEngine
 * become coded tensors, and their parts leave the tree, unless @options wants them as stored.
 */
enum tsr_status tsr_import_states(struct tsr_checkpoint *c, const struct tsr_open_options *options,
				  struct tsr_err *err);

#endif
