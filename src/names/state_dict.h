/* SPDX-License-Identifier: Apache-2.0 */
/* Names of tensors, by what was saved around them, and states of other tools. */
#ifndef TSR_NAMES_STATE_DICT_H
#define TSR_NAMES_STATE_DICT_H

#include "ckpt/build.h"

/* Tensors of a tree: give them and the arrays their names, joining optimizer states to parameters. */
enum tsr_status tsr_state_dict_name(struct tsr_checkpoint *c,
				    const struct tsr_open_options *options, struct tsr_err *err);

/* --- What the places of tensors in what was saved around them say of them --------------------- */

/*
 * Set `model` of the tensors of a model's state_dict(), and `field` of those in the state of an
 * optimizer: the keys below its parameter.  Trees and tensors must be complete.
 */
enum tsr_status tsr_places_mark(struct tsr_checkpoint *c, struct tsr_err *err);

/* Import of the compressed optimizer states of other tools, as tensors that decode to FP32. */

/*
 * Make tensors of arrays.  Compressed states of FlashOptim, bitsandbytes and TransformerEngine
 * become coded tensors, and their parts leave the tree, unless @options wants them as stored.
 */
enum tsr_status tsr_import_states(struct tsr_checkpoint *c, const struct tsr_open_options *options,
				  struct tsr_err *err);

#endif
