/* SPDX-License-Identifier: Apache-2.0 */
/* Export of a packed checkpoint as a compressed state dict of FlashOptim. */
#ifndef TSR_NAMES_FLASHOPTIM_EXPORT_H
#define TSR_NAMES_FLASHOPTIM_EXPORT_H

#include "ckpt/build.h"

/*
 * Rearrange a packed checkpoint into the arrays and the tree of a compressed state dict of
 * FlashOptim, without touching a plane: {"model": narrow weights, "optimizer": {"state":
 * {i: error_bits, exp_avg::quantized, exp_avg::scales, ...}, "param_groups": [...]}}.  Corrections
 * of 8 bits become BF16 holding whole numbers; those of 16 bits and the FP16 scales are called
 * BF16, as FlashOptim 0.1.4 has them.  TSR_E_UNSUPPORTED for codecs that FlashOptim does not have:
 * weights must be bf16+ulp8 or bf16+ulp16, states softsign8 and sqrt8 with f16 scales in groups
 * of 32.
 */
enum tsr_status tsr_flashoptim_arrange(struct tsr_checkpoint *c, struct tsr_err *err);

/*
 * Whether FlashOptim has the codec of a tensor, which is @path's; *@bytewidth, 0 at first, becomes
 * that of the weights, which all have the same.
 */
enum tsr_status tsr_flashoptim_check(const char *path, const char *tensor,
				     const struct tsr_coding *coding, uint64_t *bytewidth,
				     struct tsr_err *err);

#endif
