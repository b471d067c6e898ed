/* SPDX-License-Identifier: Apache-2.0 */
/* What Adam's rule guarantees of its moments, whatever the gradients were: docs/internals/numerics.md. */
#ifndef TSR_STEP_ADAM_BOUND_H
#define TSR_STEP_ADAM_BOUND_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "tersor/measure.h"

/* For values that were in 8 bits in between: measured, see there. */
#define TSR_ADAM_ALLOWED (1.0 / 16)

/*
 * The most that |m| / (sqrt(v) + eps) can be of moments that began at 0 and were kept in FP32 with these
 * betas, by Cauchy and Schwarz: m and v are sums over the gradients with weights (1 - b1) b1^k and
 * (1 - b2) b2^k.  Allows for the rounding of each step, and TSR_ADAM_ALLOWED.  Infinite if nothing is
 * guaranteed, as b1^2 >= b2.
 */
static inline double tsr_adam_bound(double beta1, double beta2)
{
	const double rounding = 0x1p-22 / (1 - beta1) + 0x1p-22 / (1 - beta2);
	const double square = (1 - beta2) * (1 - beta1 * beta1 / beta2);

	if (!(beta1 > 0 && beta1 < 1 && beta2 > 0 && beta2 < 1 && square > 0))
		return (double)INFINITY;
	return (1 - beta1) / sqrt(square) * (1 + rounding + TSR_ADAM_ALLOWED);
}

/* The least that a variance can be @steps steps later: v b2^steps, less what rounding and underflow take. */
static inline double tsr_adam_floor(double beta2, uint64_t steps, float v)
{
	const double n = (double)steps;

	return (double)v * pow(beta2, n) * (1 - 0x1p-22 * n) - (double)FLT_MIN / (1 - beta2);
}

/* Add element @i, which breaks a rule. */
static inline void tsr_breach_add(struct tsr_breach *b, uint64_t i, float m, float v)
{
	if (!b->n++)
		*b = (struct tsr_breach){ 1, i, m, v };
}

/* What a later part of a tensor has. */
static inline void tsr_breach_merge(struct tsr_breach *into, const struct tsr_breach *later)
{
	const uint64_t n = into->n + later->n;

	if (!into->n)
		*into = *later;
	into->n = n;
}

/* Whether elements that updates were measured of can have a breach: rarely true where none has. */
static inline bool tsr_update_suspect(const struct tsr_update_measure *u, double bound)
{
	return u->nonfinite || (double)u->max_before > bound * (1 - 0x1p-20);
}

typedef float tsr_f32x4 __attribute__((vector_size(16)));
typedef int32_t tsr_i32x4 __attribute__((vector_size(16)));

/* The same of @n elements of which none were: by m^2 <= bound^2 v, four at a time. */
static inline bool tsr_moments_suspect(const struct tsr_moments *x, size_t n, double bound)
{
	const float square = (float)fmin(bound * bound * (1 - 0x1p-20), 1e38);
	const size_t whole = n - n % 4;
	tsr_i32x4 within = { -1, -1, -1, -1 };
	bool all = true;

	for (size_t i = 0; i < whole; i += 4) {
		tsr_f32x4 m, v;

		memcpy(&m, x->m + i, sizeof(m));
		memcpy(&v, x->v + i, sizeof(v));
		within &= m * m <= v * square;
	}
	for (size_t i = whole; i < n; i++)
		all = all && x->m[i] * x->m[i] <= x->v[i] * square;
	return !(all && (within[0] & within[1] & within[2] & within[3]));
}

/* Add those of @n elements, from @first on.  NaN and infinity are other faults, and none here. */
static inline void tsr_breach_find(struct tsr_breach *b, const struct tsr_moments *x,
				   uint64_t first, size_t n, double bound, float eps)
{
	for (size_t i = 0; i < n; i++) {
		const double m = fabs((double)x->m[i]), v = (double)x->v[i];

		if (isfinite(x->m[i]) && isfinite(x->v[i]) &&
		    (v < 0 || m > bound * (sqrt(v) + (double)eps)))
			tsr_breach_add(b, first + i, x->m[i], x->v[i]);
	}
}

#endif
