/* SPDX-License-Identifier: Apache-2.0 */
/* Which floating-point tensors belong to a weight that is stored as integers or as narrow floats. */
#ifndef TSR_NAMES_QUANTIZED_H
#define TSR_NAMES_QUANTIZED_H

#include "ckpt/checkpoint_model.h"

/*
 * Set `quantized` of every tensor of @c: of a scale, a zero point, a table or anything else in floating
 * point that only means something together with a quantized weight, the name of that weight; else NULL.
 *
 * A tensor of integers or of floats of at most 8 bits, with at least one dimension, is taken for a
 * quantized weight
 * - of the tensors whose names are its own and one more component, such as W.absmax;
 * - of the tensors that are directly in its module, such as layer.scales beside layer.qweight, if it takes
 *   more bytes than each of those that are floating-point.  A name without a dot is in no module.
 *
 * Integers of 64 bits and booleans are positions, counters and masks.
 */
enum tsr_status tsr_quantized_find(struct tsr_checkpoint *c, struct tsr_err *err);

#endif
