/* SPDX-License-Identifier: Apache-2.0 */
/* Dropping the arrays of files whose parts became other arrays. */
#ifndef TSR_LAYOUTS_REACHED_H
#define TSR_LAYOUTS_REACHED_H

#include "ckpt/build.h"

/*
 * Of the arrays from @first on, keep those that @root has as TENSOR values, in their order, and number
 * them anew.  No other tree may have one of them.
 */
enum tsr_status tsr_keep_reached(struct tsr_checkpoint *c, size_t first, struct tsr_value *root,
				 struct tsr_err *err);

#endif
