/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update rules of PyTorch's other kernels: those of step_math.h with operations in another order.
 * docs/internals/numerics.md says how each was found.
 */
#ifndef TSR_STEP_TORCH_MATH_H
#define TSR_STEP_TORCH_MATH_H

#include "step/step_math.h"

/* --- The fused kernels of a CPU ---------------------------------------------------------------- */

/*
 * They take 8 elements at a time, and those that are left at the end of a tensor one by one, where the
 * compiler fused the other product of a sum.
 */
TSR_HD int32_t tsr_step_is_left(const struct tsr_step_scalars *s, uint64_t index)
{
	return index >= s->elements - s->elements % 8;
}

TSR_HD struct tsr_step_values tsr_step_cpu_fused_adam_raw(const struct tsr_step_scalars *s, float g,
							  struct tsr_step_values x)
{
	const float coupled = tsr_step_l2(s, g, x.weight);
	const float left = tsr_fma_any(x.variance, s->beta2, s->rest2 * coupled * coupled);

	x = tsr_step_moments(s, coupled, x);
	x.variance = tsr_step_is_left(s, x.index) ? left : x.variance;
	x = tsr_step_grow(s, x);
	x.weight = tsr_step_adam_weight(x.weight * s->keep, tsr_step_adam_update(s, x));
	return x;
}

TSR_DEFINE_RULE(cpu_fused_adam)

TSR_HD struct tsr_step_values tsr_step_cpu_fused_sgd_raw(const struct tsr_step_scalars *s, float g,
							 struct tsr_step_values x)
{
	g = tsr_step_l2(s, g, x.weight);
	{
		const float most = tsr_fma_any(s->rest1, g, s->beta1 * x.momentum);
		const float left = tsr_fma_any(s->beta1, x.momentum, s->rest1 * g);

		x.momentum = tsr_step_is_left(s, x.index) ? left : most;
	}
	x.weight = tsr_step_move(s, tsr_step_sgd_update(s, g, x.momentum), x.weight);
	return x;
}

TSR_DEFINE_RULE(cpu_fused_sgd)

/* --- The fused kernel of a GPU ----------------------------------------------------------------- */

/* All of it is in FP32: x moves to g as fma(x, beta, fma(g, -beta, g)). */
TSR_HD float tsr_step_cuda_toward(float beta, float g, float x)
{
	return tsr_fma_any(x, beta, tsr_fma_any(g, -beta, g));
}

/*
 * Whether the compiler did not fuse the coupled decay of an element.  A thread takes 4 elements, and that is
 * the first of them; with `maximize` all; with AMSGrad, also with both, none.  The 4 are neighbours if the tensor is a
 * multiple of 4, else a block of 512 threads takes 2048 elements by turns.
 */
TSR_HD int32_t tsr_step_decays_apart(const struct tsr_step_scalars *s, uint64_t index)
{
	const int32_t first = (s->elements % 4 == 0 ? index % 4 : index % 2048 / 512) == 0;

	return !s->amsgrad && (s->maximize || first);
}

/* Adam has a `decay` of 0, AdamW an `l2` of 0. */
TSR_HD struct tsr_step_values tsr_step_cuda_fused_adam_raw(const struct tsr_step_scalars *s,
							   float g, struct tsr_step_values x)
{
	const float apart = s->l2 * x.weight + g, fused = tsr_step_l2(s, g, x.weight);
	const float decayed = tsr_fma_any(x.weight, s->decay, x.weight);
	const float weight = s->decay != 0.0f ? decayed : x.weight;

	g = s->l2 != 0.0f && tsr_step_decays_apart(s, x.index) ? apart : fused;
	x.momentum = tsr_step_cuda_toward(s->beta1, g, x.momentum);
	x.variance = tsr_step_cuda_toward(s->beta2, g * g, x.variance);
	x = tsr_step_grow(s, x);
	x.weight = tsr_step_adam_weight(weight, tsr_step_adam_update(s, x));
	return x;
}

TSR_DEFINE_RULE(cuda_fused_adam)

/* --- Kernel by kernel on a GPU ----------------------------------------------------------------- */

/*
 * foreach, for-loop and capturable, whose scalars differ: those that one of them does not have are 1.  Adam
 * has a `keep` of 1, AdamW an `l2` of 0.
 */
TSR_HD struct tsr_step_values tsr_step_cuda_adam_raw(const struct tsr_step_scalars *s, float g,
						     struct tsr_step_values x)
{
	g = tsr_step_l2(s, g, x.weight);
	x.momentum = tsr_step_toward(s, g, x.momentum);
	x.variance = tsr_fma_any(s->rest2, g * g, s->beta2 * x.variance);
	x = tsr_step_grow(s, x);
	{
		const float v = tsr_step_divisor(s, x);
		const float root = tsr_sqrt(v) / s->root_correction2 * s->unroot;
		const float divisor = (root + s->eps) / s->correction1;

		x.weight = tsr_step_move(s, x.momentum / divisor, x.weight * s->keep);
	}
	return x;
}

TSR_DEFINE_RULE(cuda_adam)

/* --- The fused kernels of a GPU before PyTorch 2.11 -------------------------------------------- */

/* With hyperparameters in binary64, and so all that meets one; each variable is rounded. */
TSR_HD float tsr_step_double_l2(const struct tsr_step_scalars *s, float g, float w)
{
	const float decayed = (float)((double)g + s->wide.l2 * (double)w);

	return s->wide.l2 != 0.0 ? decayed : g;
}

TSR_HD struct tsr_step_values tsr_step_double_adam_raw(const struct tsr_step_scalars *s, float g,
						       struct tsr_step_values x)
{
	const struct tsr_step_wide *d = &s->wide;
	const double w = (double)x.weight, wide = (double)tsr_step_double_l2(s, g, x.weight);
	const float decayed = (float)(w - d->decay * w);

	x.momentum = (float)(d->beta1 * (double)x.momentum + d->rest1 * wide);
	x.variance = (float)(d->beta2 * (double)x.variance + d->rest2 * wide * wide);
	x = tsr_step_grow(s, x);
	{
		const float root = tsr_sqrt(tsr_step_divisor(s, x)) / s->root_correction2;
		const float divisor = (float)((double)root + d->eps);

		x.weight = tsr_step_adam_weight(d->decay != 0.0 ? decayed : x.weight,
						s->rate * x.momentum / divisor);
	}
	return x;
}

TSR_DEFINE_RULE(double_adam)

TSR_HD struct tsr_step_values tsr_step_double_sgd_raw(const struct tsr_step_scalars *s, float g,
						      struct tsr_step_values x)
{
	const struct tsr_step_wide *d = &s->wide;

	g = tsr_step_double_l2(s, g, x.weight);
	x.momentum = (float)(d->beta1 * (double)x.momentum + d->rest1 * (double)g);
	{
		const float ahead = (float)((double)g + d->nesterov * (double)x.momentum);
		const float update = d->nesterov != 0.0 ? ahead : x.momentum;

		x.weight = (float)((double)x.weight - d->lr * (double)update);
	}
	return x;
}

TSR_DEFINE_RULE(double_sgd)

TSR_HD struct tsr_step_values tsr_step_double_plain_sgd_raw(const struct tsr_step_scalars *s,
							    float g, struct tsr_step_values x)
{
	g = tsr_step_double_l2(s, g, x.weight);
	x.weight = (float)((double)x.weight - s->wide.lr * (double)g);
	return x;
}

TSR_DEFINE_RULE(double_plain_sgd)

#endif
