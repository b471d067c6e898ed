/* SPDX-License-Identifier: Apache-2.0 */
/* Momenta as ratios to the roots of their variances, or without products of factors, and back. */
#include "codec/loops.h"
#include "codec/ratio_math.h"

#define DEFINE_RATIO(name, formula) \
	void TSR_FOR_ISA(name)(float *restrict x, const float *restrict beside, \
			       enum tsr_ratio_given given, float eps, size_t n) \
	{ \
		if (given == TSR_RATIO_ROOTS) { \
			for (size_t i = 0; i < n; i++) \
				x[i] = formula(x[i], tsr_ratio_divisor(beside[i], eps)); \
			return; \
		} \
		for (size_t i = 0; i < n; i++) \
			x[i] = formula(x[i], tsr_ratio_divisor(tsr_sqrt(beside[i]), eps)); \
	}

DEFINE_RATIO(ratio_make, tsr_ratio_of)
DEFINE_RATIO(ratio_undo, tsr_ratio_momentum)

void TSR_FOR_ISA(add_products)(float *restrict x, const float *restrict products, float sign,
			       size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = tsr_ratio_add_product(x[i], products[i], sign);
}
