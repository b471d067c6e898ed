/* SPDX-License-Identifier: Apache-2.0 */
/* What the loops that encode and that decode coded planes share. */
#ifndef TSR_ENTROPY_RANS_LANES_H
#define TSR_ENTROPY_RANS_LANES_H

#include "entropy/rans_loops.h"

#define LANES TSR_RANS_LANES
#define RUN TSR_RANS_RUN
#define BLOCK TSR_RANS_BLOCK
#define BITS TSR_RANS_BITS
#define INLINE static inline __attribute__((always_inline))

#ifdef __AVX2__
#include <immintrin.h>

static inline __m256i load_eight(const void *from)
{
	return _mm256_loadu_si256((const __m256i *)from);
}

static inline __m128i load_sixteen(const void *from)
{
	return _mm_loadu_si128((const __m128i *)from);
}

static inline void store_eight(void *to, __m256i x)
{
	_mm256_storeu_si256((__m256i *)to, x);
}
#endif

#endif
