/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of step_math.h on the elements of a thread. */
#ifndef TSR_GPU_STEP_RULES_CUH
#define TSR_GPU_STEP_RULES_CUH

#include "gpu/step/gpu_step.cuh"
#include "step/torch_math.h"

/* --- Any rule ---------------------------------------------------------------------------------- */

/*
 * The formulas of step_math.h on N elements: a kernel for a number of states has the rules that have as
 * many, one for ANY_STATES all.  @first: which element of its tensor the first one is, for the latter.
 */
template <int NSTATES, int N, int UNROLL = N>
static __device__ __forceinline__ void run_rule(const struct step_args *a, const float *g, float *w,
						float *m, float *v, uint64_t first = 0)
{
	switch (a->rule) {
#define X(id, formula, nstates) \
	case RULE_##id: \
		if constexpr (NSTATES == ANY_STATES || NSTATES == nstates) { \
			_Pragma("unroll UNROLL") for (int k = 0; k < N; k++) \
			{ \
				const struct tsr_step_values x = tsr_step_##formula( \
					&a->scalars, g[k], { w[k], m[k], v[k], first + k }); \
\
				w[k] = x.weight; \
				m[k] = x.momentum; \
				v[k] = x.variance; \
			} \
		} \
		break;
		STEP_RULES(X)
#undef X
	}
}

/* --- Adam, of ordinary numbers ----------------------------------------------------------------- */

/* Whether a positive number is at least @from and below @to; one comparison. */
static __device__ __forceinline__ bool is_between(float x, float from, float to)
{
	const uint32_t least = tsr_bits_from_f32(from);

	return tsr_bits_from_f32(x) - least < tsr_bits_from_f32(to) - least;
}

/*
 * tsr_step_adam_update() without the slow paths of root and quotients.  @root: of the variance; @inverse:
 * RN(1 / root_correction2).
 */
static __device__ __forceinline__ float adam_update_ordinary(const struct tsr_step_scalars *s,
							     float m, float root, float inverse)
{
	const float divisor = tsr_near_quotient(root, s->root_correction2, inverse) + s->eps;

	return tsr_quotient_ordinary(s->rate * m, divisor);
}

/*
 * What a rule with a variance does, in two halves; NaNs are not made canonical.  stepped_weight() is the
 * weight, from the moments that have become; its last arguments are as for adam_update_ordinary().
 */
template <enum step_rule RULE>
static __device__ __forceinline__ struct tsr_step_values stepped_moments(
	const struct tsr_step_scalars *s, float g, struct tsr_step_values x)
{
	if (RULE == RULE_ADAM || RULE == RULE_FLASH_ADAM)
		g = tsr_step_l2(s, g, x.weight);
	return RULE == RULE_ADAM || RULE == RULE_ADAMW ? tsr_step_moments(s, g, x)
						       : tsr_step_flash_moments(s, g, x);
}

template <enum step_rule RULE>
static __device__ __forceinline__ float stepped_weight(const struct tsr_step_scalars *s, float w,
						       float m, float root, float inverse)
{
	if constexpr (RULE == RULE_COAT_ADAMW) {
		const float corrected = tsr_near_quotient(root, s->root_correction2, inverse);
		const float divisor = (corrected + s->eps) * s->correction1;
		const float update = tsr_fma_any(s->l2, w, tsr_quotient_ordinary(m, divisor));

		return tsr_step_move(s, update, w);
	} else if constexpr (RULE == RULE_BITSANDBYTES_ADAM) {
		return tsr_step_move(s, tsr_quotient_ordinary(m, root + s->eps), w) * s->keep;
	} else {
		const float update = adam_update_ordinary(s, m, root, inverse);

		if (RULE == RULE_FLASH_ADAM)
			return tsr_step_flash_adam_weight(s, w, update);
		return tsr_step_adam_weight(RULE == RULE_ADAMW ? w * s->keep : w, update);
	}
}

/*
 * Of rules with which even an update far below the last place of the weight can decide a bit: what must not
 * be too small; of others infinity.
 */
template <enum step_rule RULE>
static __device__ __forceinline__ float deciding_update(const struct tsr_step_scalars *s, float m)
{
	if (RULE == RULE_FLASH_ADAM)
		return fabsf(s->rate * m);
	return RULE == RULE_COAT_ADAMW ? fabsf(m) : INFINITY;
}

#endif
