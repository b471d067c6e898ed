/* SPDX-License-Identifier: Apache-2.0 */
/* The largest magnitude of a group, for the loops of codecs that share scales. */
#ifndef TSR_CODEC_ABSMAX_H
#define TSR_CODEC_ABSMAX_H

#include <stddef.h>

#include "codec/math.h"

/*
 * The largest magnitude as bits, which are ordered like the values.  A NaN is larger than all.
 */
static inline __attribute__((always_inline)) float group_absmax(const float *x, size_t n)
{
	int32_t max = 0;

	for (size_t i = 0; i < n; i++) {
		const int32_t mag = (int32_t)(tsr_bits_from_f32(x[i]) & TSR_F32_MAG);

		max = mag > max ? mag : max;
	}
	return tsr_f32_from_bits((uint32_t)max);
}

/* The largest magnitude, as above, and the smallest other than 0: of zeros only any NaN. */
struct group_reach {
	float absmax, least;
};

/* One less than the bits of a 0 is the largest unsigned number. */
static inline __attribute__((always_inline)) struct group_reach group_reach(const float *x,
									    size_t n)
{
	uint32_t below = UINT32_MAX;
	int32_t max = 0;

	for (size_t i = 0; i < n; i++) {
		const uint32_t mag = tsr_bits_from_f32(x[i]) & TSR_F32_MAG;

		max = (int32_t)mag > max ? (int32_t)mag : max;
		below = mag - 1 < below ? mag - 1 : below;
	}
	return (struct group_reach){
		tsr_f32_from_bits((uint32_t)max),
		tsr_f32_from_bits(below < (uint32_t)INT32_MAX ? below + 1 : (uint32_t)INT32_MAX),
	};
}

#endif
