/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the compressed optimizer states of other tools. */
#ifndef TSR_NAMES_FOREIGN_H
#define TSR_NAMES_FOREIGN_H

#include "ckpt/build.h"

/* Make tensors of arrays, decoding other tools' compressed states unless they are wanted as stored. */
enum tsr_status tsr_foreign_tensors(struct tsr_checkpoint *c,
				    const struct tsr_open_options *options, struct tsr_err *err);

#endif
