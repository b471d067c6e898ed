/* SPDX-License-Identifier: Apache-2.0 */
/* The scales of groups of 8-bit floats of any tensor: COAT, section 5.  table_math.h rounds elements. */
#ifndef TSR_AUDIT_GRANULARITY_MATH_H
#define TSR_AUDIT_GRANULARITY_MATH_H

#include "codec/table_math.h"
#include "tersor/granularity.h"

/* What an element is divided by before it is rounded, and what its rounded value is multiplied by. */
struct tsr_granularity_scales {
	float divisor, factor;
};

/* The least BF16 value that is not below a finite x >= 0. */
TSR_HD float tsr_bf16_round_up(float x)
{
	return tsr_f32_from_bits((tsr_bits_from_f32(x) + 0xffffu) & 0xffff0000u);
}

/*
 * @absmax is finite, @largest the largest value of the format.  @whole: the group is the tensor, whose
 * scale is the largest of stored ones in COAT.
 */
TSR_HD struct tsr_granularity_scales tsr_granularity_scales_of(enum tsr_granularity_scale how,
							       float absmax, float largest,
							       bool whole)
{
	const float scale = (absmax + 1e-10f) / largest;
	const float stored = how == TSR_GRANULARITY_BF16   ? tsr_bf16_round_up(scale)
			     : how == TSR_GRANULARITY_COAT ? tsr_bf16_round(scale)
							   : scale;
	const struct tsr_granularity_scales s = { how == TSR_GRANULARITY_COAT && !whole ? scale
											: stored,
						  stored };

	return s;
}

#endif
