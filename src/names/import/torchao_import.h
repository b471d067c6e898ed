/* SPDX-License-Identifier: Apache-2.0 */
/* Import of the states of torchao, as far as the names of tensors need it. */
#ifndef TSR_NAMES_TORCHAO_IMPORT_H
#define TSR_NAMES_TORCHAO_IMPORT_H

#include "ckpt/build.h"

/*
 * The flat codes of 4 bits in the state_dict() of an optimizer become arrays of 4-bit elements with the
 * shapes of their parameters, by which names are found.
 */
enum tsr_status tsr_import_torchao_shapes(struct tsr_checkpoint *c,
					  const struct tsr_value *optimizer, struct tsr_err *err);

#endif
