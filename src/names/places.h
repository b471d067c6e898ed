/* SPDX-License-Identifier: Apache-2.0 */
/* What the places of tensors in what was saved around them say of them. */
#ifndef TSR_NAMES_PLACES_H
#define TSR_NAMES_PLACES_H

#include "ckpt/checkpoint_model.h"

/*
 * Set `model` of the tensors of a model's state_dict(), and `field` of those in the state of an
 * optimizer: the keys below its parameter.  Trees and tensors must be complete.
 */
enum tsr_status tsr_places_mark(struct tsr_checkpoint *c, struct tsr_err *err);

#endif
