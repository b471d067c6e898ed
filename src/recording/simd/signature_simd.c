/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a signature.  Sums are added by lanes, so they do not depend on the SIMD level. */
#include "recording/signing.h"

#include "codec/simd/measure_lanes.h"

#define BATCHES (TSR_SIGN_LANES / LANES)

struct sums {
	struct f64xl squares[BATCHES];
	i32xl largest, nonfinite, zeros; /* the last two count down */
};

INLINE void add_batch(struct sums *s, unsigned batch, const float *x)
{
	struct f64xl value;
	f32xl magnitude;
	i32xl mag, special, larger;

	load_f32(&magnitude, x);
	mag = (i32xl)magnitude & (int32_t)TSR_F32_MAG;
	special = mag >= (int32_t)TSR_F32_INF;
	s->nonfinite += special;
	s->zeros += mag == 0;
	mag &= ~special;
	larger = mag > s->largest;
	s->largest = (mag & larger) | (s->largest & ~larger);
	magnitude = (f32xl)mag;
	widen(&value, &magnitude);
	value.low *= value.low;
	value.high *= value.high;
	add(&s->squares[batch], &value);
}

INLINE void add_batches(struct sums *s, const float *x)
{
#pragma GCC unroll 4
	for (unsigned k = 0; k < BATCHES; k++)
		add_batch(s, k, x + k * LANES);
}

void TSR_FOR_ISA(sign_values)(struct tsr_signed_values *v, const float *x, size_t n)
{
	struct sums s = { .zeros = { 0 } };
	size_t i = 0;

	for (; i + TSR_SIGN_LANES <= n; i += TSR_SIGN_LANES)
		add_batches(&s, x + i);
	if (i < n) {
		float rest[TSR_SIGN_LANES] = { 0 };

		/* What is missing counts as zeros, which are taken away. */
		memcpy(rest, x + i, (n - i) * sizeof(*x));
		add_batches(&s, rest);
		v->zeros -= TSR_SIGN_LANES - (uint32_t)(n - i);
	}
	memcpy(v->squares, &s.squares, sizeof(s.squares));
	for (unsigned k = 0; k < LANES; k++) {
		v->largest = (uint32_t)s.largest[k] > v->largest ? (uint32_t)s.largest[k]
								 : v->largest;
		v->nonfinite += (uint32_t)-s.nonfinite[k];
		v->zeros += (uint32_t)-s.zeros[k];
	}
}
