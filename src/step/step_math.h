/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update rules of optimizers, for C and for CUDA: see codec/math.h, whose contract this
 * keeps.  docs/replay.md derives them; operations and their order are those of PyTorch on the
 * CPU (foreach=False), so that results can be compared by their bits, or where the name says so
 * those of another program, such as FlashOptim's kernels.
 */
#ifndef TSR_STEP_STEP_MATH_H
#define TSR_STEP_STEP_MATH_H

#include <stdbool.h>

#include "codec/learned_math.h"
#include "codec/math.h"

/* Hyperparameters of the kernels that have them in binary64. */
struct tsr_step_wide {
	double lr, l2, decay, eps;
	double beta1, rest1, beta2, rest2; /* SGD: momentum and 1 - dampening first */
	double nesterov;
};

/* Of SOAP: its factors, and when its bases change. */
struct tsr_step_soap {
	float beta, rest; /* of factors: beta and 1 - beta */
	float least; /* what is added to the norm of an update that is divided by it */
	bool normalizes;
	bool turns; /* the momentum is kept in the bases */
	bool refreshes; /* there are new bases after the step */
};

/*
 * What a rule needs to know of a step besides the elements.  Computed on the host in binary64, each
 * rounded once.  A rule uses those that its formula names.
 */
struct tsr_step_scalars {
	float keep; /* decoupled weight decay: w * keep, 1 - lr * weight_decay */
	/* Coupled weight decay: g + l2 * w; 0 leaves g as it is.  COAT: update + l2 * w */
	float l2;
	float beta1, rest1; /* beta1 and 1 - beta1; SGD: momentum and 1 - dampening */
	float beta2, rest2; /* beta2 and 1 - beta2 */
	float blend1; /* Adam: the momentum moves by blend1 * (g - m) ... */
	float from_grad; /* ... from itself, or, if this is not 0, from g */
	float correction1; /* 1 - beta1^t: COAT's only, the others have it in the rate */
	float root_correction2; /* sqrt(1 - beta2^t) */
	float eps;
	float rate; /* what the update is multiplied by: -lr, -lr / (1 - beta1^t) */
	float nesterov; /* SGD: the momentum if Nesterov's form is used, else 0 */
	float unbias1; /* Gefen: 1 / (1 - beta1^t) */
	float minus_lr; /* Gefen */
	/* Of PyTorch's kernels, see torch_math.h */
	float decay; /* fused: w + decay * w */
	float unroot; /* 1 / root_correction2 where that is multiplied by, else 1 */
	bool maximize; /* the gradient is negated first */
	bool amsgrad; /* updates are divided by the root of the largest variance */
	uint64_t elements; /* of the tensor: which one it is decides how some are computed */
	struct tsr_step_wide wide;
	struct tsr_step_soap soap;
};

/* An element of each part, and which one it is; a rule leaves those alone that it does not use. */
struct tsr_step_values {
	float weight, momentum, variance, max_variance;
	uint64_t index; /* in its tensor */
};

/* --- Building blocks ------------------------------------------------------------------------ */

/*
 * RN(a * b + c) with one rounding, for any operands.
 *
 * Without a fused instruction: the product is exact in binary64, the sum is rounded to odd there
 * (its last bit says that something is missing), and so the rounding to binary32 is the only one
 * that matters, also where the result is subnormal (Boldo and Melquiond, 2008).  The error of the
 * sum is Knuth's TwoSum; it is NaN where something is infinite, and then compares as no error.
 */
TSR_HD float tsr_fma_any(float a, float b, float c)
{
#if defined(__CUDA_ARCH__)
	return __fmaf_rn(a, b, c);
#elif defined(__FMA__)
	return __builtin_fmaf(a, b, c);
#else
	const double product = (double)a * (double)b;
	const double addend = (double)c;
	const double sum = product + addend;
	const double back = sum - product;
	const double error = (product - (sum - back)) + (addend - back);
	uint64_t bits;
	double odd;

	memcpy(&bits, &sum, sizeof(bits));
	{
		const uint64_t even = ~bits & 1;
		const uint64_t outward = error > 0 ? even : 0, inward = error < 0 ? even : 0;
		const uint64_t up = sum > 0 ? outward : inward, down = sum > 0 ? inward : outward;

		bits = bits + up - down;
	}
	memcpy(&odd, &bits, sizeof(odd));
	return (float)odd;
#endif
}

/* The one NaN that steps make: which one an operation passes on differs between processors. */
TSR_HD float tsr_one_nan(float x)
{
	return x == x ? x : tsr_f32_from_bits(0x7fc00000u);
}

/*
 * Rules come in two forms: tsr_step_x_raw() leaves which NaN a result is to the processor, and
 * tsr_step_x() makes it the one of the three results, once all of them are computed.
 */
TSR_HD struct tsr_step_values tsr_step_one_nans(struct tsr_step_values x)
{
	x.momentum = tsr_one_nan(x.momentum);
	x.variance = tsr_one_nan(x.variance);
	x.max_variance = tsr_one_nan(x.max_variance);
	return x;
}

TSR_HD struct tsr_step_values tsr_step_all_one_nan(struct tsr_step_values x)
{
	x.weight = tsr_one_nan(x.weight);
	return tsr_step_one_nans(x);
}

/* Whether a raw result needs that.  A NaN variance has made a NaN weight. */
TSR_HD int32_t tsr_step_has_nan(struct tsr_step_values x)
{
#if defined(__CUDA_ARCH__)
	return x.weight != x.weight || x.momentum != x.momentum;
#else
	return __builtin_isunordered(x.weight, x.momentum);
#endif
}

#define TSR_DEFINE_RULE(id) \
	TSR_HD struct tsr_step_values tsr_step_##id(const struct tsr_step_scalars *s, float g, \
						    struct tsr_step_values x) \
	{ \
		return tsr_step_all_one_nan(tsr_step_##id##_raw(s, g, x)); \
	}

/* The gradient with coupled weight decay.  Not g + 0 * w, which could turn -0 into +0. */
TSR_HD float tsr_step_l2(const struct tsr_step_scalars *s, float g, float w)
{
	const float decayed = tsr_fma_any(s->l2, w, g);

	return s->l2 != 0.0f ? decayed : g;
}

/* The weight that moved by rate * update. */
TSR_HD float tsr_step_move(const struct tsr_step_scalars *s, float update, float w)
{
	return tsr_fma_any(s->rate, update, w);
}

/* --- SGD and SGDW ---------------------------------------------------------------------------- */

/* Without momentum. */
TSR_HD struct tsr_step_values tsr_step_plain_sgd_raw(const struct tsr_step_scalars *s, float g,
						     struct tsr_step_values x)
{
	g = tsr_step_l2(s, g, x.weight);
	x.weight = tsr_step_move(s, g, x.weight * s->keep);
	return x;
}

TSR_DEFINE_RULE(plain_sgd)

/* What moves the weight, once the momentum has. */
TSR_HD float tsr_step_sgd_update(const struct tsr_step_scalars *s, float g, float m)
{
	const float ahead = tsr_fma_any(s->nesterov, m, g);

	return s->nesterov != 0.0f ? ahead : m;
}

TSR_HD struct tsr_step_values tsr_step_sgd_raw(const struct tsr_step_scalars *s, float g,
					       struct tsr_step_values x)
{
	g = tsr_step_l2(s, g, x.weight);
	x.momentum = tsr_fma_any(s->rest1, g, s->beta1 * x.momentum);
	x.weight = tsr_step_move(s, tsr_step_sgd_update(s, g, x.momentum), x.weight * s->keep);
	return x;
}

TSR_DEFINE_RULE(sgd)

/* --- Adam and AdamW -------------------------------------------------------------------------- */

/* Once the variance has moved; as torch.maximum() has it, a NaN stays one. */
TSR_HD struct tsr_step_values tsr_step_grow(const struct tsr_step_scalars *s,
					    struct tsr_step_values x)
{
	const float larger = x.max_variance >= x.variance ? x.max_variance : x.variance;
	const float largest = x.max_variance == x.max_variance ? larger : x.max_variance;

	x.max_variance = s->amsgrad ? largest : x.max_variance;
	return x;
}

/* What the update is divided by the root of. */
TSR_HD float tsr_step_divisor(const struct tsr_step_scalars *s, struct tsr_step_values x)
{
	return s->amsgrad ? x.max_variance : x.variance;
}

/* rate * m / (sqrt(v) / root_correction2 + eps), from what the moments have become. */
TSR_HD float tsr_step_adam_update(const struct tsr_step_scalars *s, struct tsr_step_values x)
{
	const float root = tsr_sqrt(tsr_step_divisor(s, x)) / s->root_correction2;
	const float divisor = root + s->eps;

	return s->rate * x.momentum / divisor;
}

TSR_HD float tsr_step_variance(const struct tsr_step_scalars *s, float g, float v)
{
	return tsr_fma_any(s->rest2 * g, g, s->beta2 * v);
}

/* The momentum that moved toward the gradient, from whichever of the two is nearer. */
TSR_HD float tsr_step_toward(const struct tsr_step_scalars *s, float g, float m)
{
	const float base = s->from_grad != 0.0f ? g : m;

	return tsr_fma_any(s->blend1, g - m, base);
}

/* The new moments, before NaNs are made canonical: PyTorch's, and FlashOptim's. */
TSR_HD struct tsr_step_values tsr_step_moments(const struct tsr_step_scalars *s, float g,
					       struct tsr_step_values x)
{
	x.momentum = tsr_step_toward(s, g, x.momentum);
	x.variance = tsr_step_variance(s, g, x.variance);
	return x;
}

TSR_HD struct tsr_step_values tsr_step_flash_moments(const struct tsr_step_scalars *s, float g,
						     struct tsr_step_values x)
{
	x.momentum = tsr_fma_any(s->rest1, g, s->beta1 * x.momentum);
	x.variance = tsr_step_variance(s, g, x.variance);
	return x;
}

/* What the weight becomes by that update, which FlashOptim's decays, too. */
TSR_HD float tsr_step_adam_weight(float w, float update)
{
	return w + update;
}

TSR_HD float tsr_step_flash_adam_weight(const struct tsr_step_scalars *s, float w, float update)
{
	return tsr_fma_any(w, s->keep, update);
}

TSR_HD struct tsr_step_values tsr_step_adam_raw(const struct tsr_step_scalars *s, float g,
						struct tsr_step_values x)
{
	x = tsr_step_grow(s, tsr_step_moments(s, tsr_step_l2(s, g, x.weight), x));
	x.weight = tsr_step_adam_weight(x.weight, tsr_step_adam_update(s, x));
	return x;
}

TSR_DEFINE_RULE(adam)

TSR_HD struct tsr_step_values tsr_step_adamw_raw(const struct tsr_step_scalars *s, float g,
						 struct tsr_step_values x)
{
	x = tsr_step_grow(s, tsr_step_moments(s, g, x));
	x.weight = tsr_step_adam_weight(x.weight * s->keep, tsr_step_adam_update(s, x));
	return x;
}

TSR_DEFINE_RULE(adamw)

/* FlashOptim's, as its kernels are contracted; Adam has a `keep` of 1, AdamW an `l2` of 0. */
TSR_HD struct tsr_step_values tsr_step_flash_adam_raw(const struct tsr_step_scalars *s, float g,
						      struct tsr_step_values x)
{
	x = tsr_step_flash_moments(s, tsr_step_l2(s, g, x.weight), x);
	x.weight = tsr_step_flash_adam_weight(s, x.weight, tsr_step_adam_update(s, x));
	return x;
}

TSR_DEFINE_RULE(flash_adam)

/*
 * COAT's AdamW: w - lr (m / ((sqrt(v) / root_correction2 + eps) correction1) + decay w), by moments that
 * have not been rounded to its 8 bits yet.
 */
TSR_HD struct tsr_step_values tsr_step_coat_adamw_raw(const struct tsr_step_scalars *s, float g,
						      struct tsr_step_values x)
{
	x = tsr_step_flash_moments(s, g, x);
	{
		const float root = tsr_sqrt(x.variance) / s->root_correction2;
		const float divisor = (root + s->eps) * s->correction1;
		const float update = tsr_fma_any(s->l2, x.weight, x.momentum / divisor);

		x.weight = tsr_step_move(s, update, x.weight);
	}
	return x;
}

TSR_DEFINE_RULE(coat_adamw)

/* The 8-bit Adam of bitsandbytes: weights decay after the update, and apart from the gradient. */
TSR_HD struct tsr_step_values tsr_step_bitsandbytes_adam_raw(const struct tsr_step_scalars *s,
							     float g, struct tsr_step_values x)
{
	x = tsr_step_flash_moments(s, g, x);
	{
		const float divisor = tsr_sqrt(x.variance) + s->eps;

		x.weight = tsr_step_move(s, x.momentum / divisor, x.weight) * s->keep;
	}
	return x;
}

TSR_DEFINE_RULE(bitsandbytes_adam)

/* --- Gefen ----------------------------------------------------------------------------------- */

/*
 * Gefen's step is one of AdamW in two parts: first the moments of a block, the variance by the mean of
 * squares; then the weights, by the momentum as it is stored.  Operations are those of its program where
 * it is not fused.
 */

/* A square is exact; tsr_block_mean() of their sum rounds once. */
TSR_HD double tsr_step_square(float g)
{
	return (double)g * (double)g;
}

TSR_HD float tsr_step_gefen_variance(const struct tsr_step_scalars *s, float mean, float v)
{
	return tsr_one_nan(tsr_fma_any(s->rest2, mean, s->beta2 * v));
}

/* What momenta are multiplied by, the same for all elements of a block; and a weight by such a product. */
TSR_HD float tsr_step_gefen_size(const struct tsr_step_scalars *s, float v)
{
	return s->unbias1 / (tsr_sqrt(v) / s->root_correction2 + s->eps);
}

TSR_HD float tsr_step_gefen_move(const struct tsr_step_scalars *s, float w, float m, float size)
{
	return w * s->keep + m * size * s->minus_lr;
}

TSR_HD float tsr_step_gefen_weight(const struct tsr_step_scalars *s, float w, float m, float v)
{
	return tsr_one_nan(tsr_step_gefen_move(s, w, m, tsr_step_gefen_size(s, v)));
}

/* --- Muon ------------------------------------------------------------------------------------ */

/* The three numbers of a round of Newton and Schulz, and how many rounds there are. */
#define TSR_MUON_A 3.4445
#define TSR_MUON_B (-4.7750)
#define TSR_MUON_C 2.0315
#define TSR_MUON_ROUNDS 5

/* What is orthogonalised: the momentum, or in Nesterov's form one step ahead of it. */
TSR_HD float tsr_step_muon_update(const struct tsr_step_scalars *s, float g, float m)
{
	if (s->nesterov == 0.0f)
		return m;
	if (s->rest1 != 0.0f)
		return tsr_fma_any(s->rest1, g, s->nesterov * m);
	if (s->nesterov < 0.5f)
		return tsr_fma_any(s->nesterov, m - g, g);
	return tsr_fma_any(s->nesterov - 1.0f, m - g, m);
}

/*
 * An element of X, A or B: BF16, in which what is below 2^-64 is 0.  Then products are exact in FP32, and it
 * makes no difference to a sum whether they are added by a fused operation.
 */
TSR_HD float tsr_step_muon_round(float x)
{
	const float rounded = tsr_bf16_round(x);

	return tsr_abs(rounded) < 0x1p-64f ? 0.0f : rounded;
}

/* sum + a b, of such elements. */
TSR_HD float tsr_step_muon_add(float a, float b, float sum)
{
#if defined(__CUDA_ARCH__) || defined(__FMA__)
	return tsr_fma_any(a, b, sum);
#else
	return sum + a * b;
#endif
}

/* An element of X at first; @norm is that of all, in BF16. */
TSR_HD float tsr_step_muon_scaled(float x, float norm, float eps)
{
	const float least = tsr_bf16_round(eps);

	return tsr_step_muon_round(x / (norm < least ? least : norm));
}

/* b * A + c * A A, and a * X + B X: of an element, given those of the products. */
TSR_HD float tsr_step_muon_b(float a, float aa)
{
	return tsr_step_muon_round((float)TSR_MUON_B * a + (float)TSR_MUON_C * aa);
}

TSR_HD float tsr_step_muon_x(float x, float bx)
{
	return tsr_step_muon_round((float)TSR_MUON_A * x + bx);
}

/* --- Lion ------------------------------------------------------------------------------------ */

/* rate * sign(x): for 0 the zero that leaves any weight as it is, -0; for NaN a NaN. */
TSR_HD float tsr_step_signed_rate(float rate, float x)
{
	const uint32_t sign = tsr_bits_from_f32(x) & TSR_F32_SIGN;
	const float moved = tsr_f32_from_bits(tsr_bits_from_f32(rate) ^ sign);
	const float stays = tsr_f32_from_bits(tsr_bits_from_f32(x) | TSR_F32_SIGN);

#if defined(__CUDA_ARCH__)
	return x < 0.0f || x > 0.0f ? moved : stays;
#else
	return __builtin_islessgreater(x, 0.0f) ? moved : stays;
#endif
}

TSR_HD float tsr_step_lion_update(const struct tsr_step_scalars *s, float g, float m)
{
	return tsr_step_signed_rate(s->rate, tsr_fma_any(s->rest1, g, s->beta1 * m));
}

TSR_HD struct tsr_step_values tsr_step_lion_raw(const struct tsr_step_scalars *s, float g,
						struct tsr_step_values x)
{
	const float kept = x.weight * s->keep;

	x.weight = kept + tsr_step_lion_update(s, g, x.momentum);
	x.momentum = tsr_fma_any(s->rest2, g, s->beta2 * x.momentum);
	return x;
}

TSR_DEFINE_RULE(lion)

/* FlashOptim's: the decay is not rounded on its own. */
TSR_HD struct tsr_step_values tsr_step_flash_lion_raw(const struct tsr_step_scalars *s, float g,
						      struct tsr_step_values x)
{
	const float update = tsr_step_lion_update(s, g, x.momentum);

	x.weight = tsr_fma_any(x.weight, s->keep, update);
	x.momentum = tsr_fma_any(s->rest2, g, s->beta2 * x.momentum);
	return x;
}

TSR_DEFINE_RULE(flash_lion)

#endif
