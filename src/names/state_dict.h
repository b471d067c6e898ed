/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the tensors in what was saved: a tree of values. */
#ifndef TSR_NAMES_STATE_DICT_H
#define TSR_NAMES_STATE_DICT_H

#include "ckpt/build.h"

/* Tensors of a tree: give them and the arrays their names, joining optimizer states to parameters. */
enum tsr_status tsr_state_dict_name(struct tsr_checkpoint *c,
				    const struct tsr_open_options *options, struct tsr_err *err);

#endif
