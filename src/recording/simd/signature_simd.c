/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a signature.  Sums are added by lanes, so they do not depend on the SIMD level. */
#include "recording/signing.h"

#include "codec/math.h"

void TSR_FOR_ISA(sign_values)(struct tsr_signed_values *s, const float *x, size_t n)
{
	uint32_t largest[TSR_SIGN_LANES] = { 0 }, nonfinite[TSR_SIGN_LANES] = { 0 };
	uint32_t zeros[TSR_SIGN_LANES] = { 0 };
	size_t i = 0;

	for (; i < n; i += TSR_SIGN_LANES) {
		float batch[TSR_SIGN_LANES];

		/* What is missing in the last batch counts as zeros, which are taken away below. */
		for (unsigned k = 0; k < TSR_SIGN_LANES; k++)
			batch[k] = i + k < n ? x[i + k] : 0;
		for (unsigned k = 0; k < TSR_SIGN_LANES; k++) {
			const uint32_t mag = tsr_bits_from_f32(batch[k]) & TSR_F32_MAG;
			const bool finite = mag < TSR_F32_INF;
			const double value = finite ? (double)batch[k] : 0;

			largest[k] = finite && mag > largest[k] ? mag : largest[k];
			nonfinite[k] += !finite;
			zeros[k] += mag == 0;
			s->squares[k] += value * value;
		}
	}
	s->zeros -= i - n;
	for (unsigned k = 0; k < TSR_SIGN_LANES; k++) {
		s->largest = largest[k] > s->largest ? largest[k] : s->largest;
		s->nonfinite += nonfinite[k];
		s->zeros += zeros[k];
	}
}
