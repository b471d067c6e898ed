/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of step_math.h on the elements of a thread. */
#ifndef TSR_GPU_STEP_RULES_CUH
#define TSR_GPU_STEP_RULES_CUH

#include "gpu/step/gpu_step.cuh"

/* --- Any rule ---------------------------------------------------------------------------------- */

/*
 * The formulas of step_math.h on N elements: a kernel for a number of states has the rules that have as
 * many, one for ANY_STATES all.
 */
template <int NSTATES, int N, int UNROLL = N>
static __device__ __forceinline__ void run_rule(const struct step_args *a, const float *g, float *w,
						float *m, float *v)
{
	switch (a->rule) {
#define X(id, formula, nstates) \
	case RULE_##id: \
		if constexpr (NSTATES == ANY_STATES || NSTATES == nstates) { \
			_Pragma("unroll UNROLL") for (int k = 0; k < N; k++) \
			{ \
				const struct tsr_step_values x = tsr_step_##formula( \
					&a->scalars, g[k], { w[k], m[k], v[k] }); \
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
 * What a rule does; NaNs are not made canonical.  stepped() is the weight, from the moments that have
 * become; its last arguments are as for adam_update_ordinary().  needs_whole_update: even an update far below
 * the last place of the weight can decide a bit; then update_slot() is what must not be too small.
 */
struct adam {
	static const bool needs_whole_update = false;

	static __device__ __forceinline__ struct tsr_step_values moments(
		const struct tsr_step_scalars *s, float g, struct tsr_step_values x)
	{
		return tsr_step_moments(s, tsr_step_l2(s, g, x.weight), x);
	}
	static __device__ __forceinline__ float stepped(const struct tsr_step_scalars *s, float w,
							float m, float root, float inverse)
	{
		return tsr_step_adam_weight(w, adam_update_ordinary(s, m, root, inverse));
	}
};

struct adamw {
	static const bool needs_whole_update = false;

	static __device__ __forceinline__ struct tsr_step_values moments(
		const struct tsr_step_scalars *s, float g, struct tsr_step_values x)
	{
		return tsr_step_moments(s, g, x);
	}
	static __device__ __forceinline__ float stepped(const struct tsr_step_scalars *s, float w,
							float m, float root, float inverse)
	{
		return tsr_step_adam_weight(w * s->keep, adam_update_ordinary(s, m, root, inverse));
	}
};

struct flash_adam {
	static const bool needs_whole_update = true;

	static __device__ __forceinline__ struct tsr_step_values moments(
		const struct tsr_step_scalars *s, float g, struct tsr_step_values x)
	{
		return tsr_step_flash_moments(s, tsr_step_l2(s, g, x.weight), x);
	}
	static __device__ __forceinline__ float stepped(const struct tsr_step_scalars *s, float w,
							float m, float root, float inverse)
	{
		return tsr_step_flash_adam_weight(s, w, adam_update_ordinary(s, m, root, inverse));
	}
	static __device__ __forceinline__ float update_slot(const struct tsr_step_scalars *s,
							    float m)
	{
		return s->rate * m;
	}
};

struct coat_adamw {
	static const bool needs_whole_update = true;

	static __device__ __forceinline__ struct tsr_step_values moments(
		const struct tsr_step_scalars *s, float g, struct tsr_step_values x)
	{
		return tsr_step_flash_moments(s, g, x);
	}
	static __device__ __forceinline__ float stepped(const struct tsr_step_scalars *s, float w,
							float m, float root, float inverse)
	{
		const float corrected = tsr_near_quotient(root, s->root_correction2, inverse);
		const float divisor = (corrected + s->eps) * s->correction1;
		const float update = tsr_fma_any(s->l2, w, tsr_quotient_ordinary(m, divisor));

		return tsr_step_move(s, update, w);
	}
	static __device__ __forceinline__ float update_slot(const struct tsr_step_scalars *s,
							    float m)
	{
		return (void)s, m;
	}
};

struct bitsandbytes_adam {
	static const bool needs_whole_update = false;

	static __device__ __forceinline__ struct tsr_step_values moments(
		const struct tsr_step_scalars *s, float g, struct tsr_step_values x)
	{
		return tsr_step_flash_moments(s, g, x);
	}
	static __device__ __forceinline__ float stepped(const struct tsr_step_scalars *s, float w,
							float m, float root, float inverse)
	{
		(void)inverse;
		return tsr_step_move(s, tsr_quotient_ordinary(m, root + s->eps), w) * s->keep;
	}
};

#endif
