/* SPDX-License-Identifier: Apache-2.0 */
/* Momenta as ratios to the roots of their variances, for the loops of steps. */
#ifndef TSR_CODEC_RATIO_H
#define TSR_CODEC_RATIO_H

#include <stddef.h>

#include "base/isa.h"

/* What variances of a tensor are given as. */
enum tsr_ratio_given {
	TSR_RATIO_VARIANCES,
	TSR_RATIO_ROOTS,
};

/* As tsr_ratios_make() and tsr_ratios_undo(), of variances or of their roots. */
typedef void tsr_ratio_fn(float *x, const float *beside, enum tsr_ratio_given given, float eps,
			  size_t n);
TSR_ISA_DECLARE(tsr_ratio_fn, ratio_make)
TSR_ISA_DECLARE(tsr_ratio_fn, ratio_undo)

#endif
