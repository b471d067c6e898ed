/* SPDX-License-Identifier: Apache-2.0 */
/* Products of factors, and what they leave of a matrix in the codec that a low-rank codec's name ends in. */
#include <string.h>

#include "codec/loops.h"

#define LANES 16u

typedef float lanes_f32 __attribute__((vector_size(4 * LANES)));

void TSR_FOR_ISA(products)(const float *restrict left, const float *restrict right, size_t n,
			   float *restrict x)
{
	size_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		lanes_f32 sum, factor;

		memcpy(&sum, x + i, sizeof(sum));
		for (unsigned k = 0; k < TSR_RANK; k++) {
			memcpy(&factor, right + k * TSR_PRODUCT_COLUMNS + i, sizeof(factor));
			sum += left[k] * factor;
		}
		memcpy(x + i, &sum, sizeof(sum));
	}
	for (; i < n; i++) {
		for (unsigned k = 0; k < TSR_RANK; k++)
			x[i] += left[k] * right[k * TSR_PRODUCT_COLUMNS + i];
	}
}

/* Elements are those of whole rows, and of the plane of factors these have their share. */
#define X(id, each, loops, rest, ...) \
	void TSR_FOR_ISA(encode_##id)(const struct tsr_coding *coding, const float *x, size_t n, \
				      void *const plane[], struct tsr_encode_report *report) \
	{ \
		TSR_FOR_ISA(encode_##rest)(coding, x, n, plane, report); \
		if (coding->factors) \
			memcpy(plane[2], \
			       coding->factors + coding->first / coding->row * coding->share, \
			       n / coding->row * coding->share); \
	} \
\
	void TSR_FOR_ISA(decode_##id)(const struct tsr_coding *coding, const void *const plane[], \
				      size_t n, float *x) \
	{ \
		TSR_FOR_ISA(decode_##rest)(coding, plane, n, x); \
	}
TSR_LOWRANK_LIST(X)
#undef X
