/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of Gefen's step, on arrays in FP32. */
#include "step/simd.h"

/* A variance or momentum as the update sees it. */
static float seen(const struct tsr_step *step, float x)
{
	const enum tsr_dtype narrow = step->coding[TSR_SLOT_MOMENTUM].narrow;

	return tsr_gefen_narrow(narrow == TSR_BF16, narrow == TSR_F16, x);
}

static void move_momenta(const struct tsr_step_scalars *scalars, const float *restrict g, size_t n,
			 float *restrict m)
{
	const struct tsr_step_scalars s = *scalars;

	for (size_t i = 0; i < n; i++)
		m[i] = tsr_one_nan(tsr_step_toward(&s, g[i], m[i]));
}

/* All elements of a block have one variance. */
static void move_variances(const struct tsr_step *step, const float *restrict g, size_t n,
			   float *restrict v)
{
	const struct tsr_step_scalars s = step->scalars;
	const size_t block = tsr_step_block(step);

	for (size_t first = 0; first < n; first += block) {
		const size_t size = n - first < block ? n - first : block;
		const float mean = tsr_block_mean(tsr_step_sum_of_squares(g + first, size), size);
		const float moved = seen(step, tsr_step_gefen_variance(&s, mean, v[first]));

		for (size_t i = first; i < first + size; i++)
			v[i] = moved;
	}
}

/* The same of blocks of one element. */
static void move_each(const struct tsr_step *step, const float *restrict g, size_t n,
		      float *restrict v)
{
	const struct tsr_step_scalars s = step->scalars;

	for (size_t i = 0; i < n; i++) {
		const float mean = tsr_block_mean(tsr_step_square(g[i]), 1);

		v[i] = seen(step, tsr_step_gefen_variance(&s, mean, v[i]));
	}
}

void TSR_FOR_ISA(step_block_moments)(const struct tsr_step *step, const float *g, size_t n,
				     float *m, float *v)
{
	move_momenta(&step->scalars, g, n, m);
	if (!v)
		return;
	if (tsr_step_block(step) == 1)
		move_each(step, g, n, v);
	else
		move_variances(step, g, n, v);
}

void TSR_FOR_ISA(step_weights)(const struct tsr_step *step, const float *restrict m,
			       const float *restrict v, size_t n, float *restrict w)
{
	const struct tsr_step_scalars s = step->scalars;

	for (size_t i = 0; i < n; i++)
		w[i] = tsr_step_gefen_weight(&s, w[i], seen(step, m[i]), v[i]);
}
