/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of step_math.h on the elements of a thread. */
#ifndef TSR_GPU_STEP_RULES_CUH
#define TSR_GPU_STEP_RULES_CUH

#include "gpu/step/gpu_step.cuh"

/* --- Any rule ---------------------------------------------------------------------------------- */

#define ANY_STATES (-1)

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
				const struct tsr_step_values x = \
					tsr_step_##formula(&a->scalars, g[k], { w[k], m[k], v[k] }); \
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

/* --- Adam -------------------------------------------------------------------------------------- */

/*
 * tsr_step_adam_update() without the slow paths of root and quotients: for scalars that
 * scalars_are_ordinary() and elements that are_ordinary().  Then the root is from 2^-50 to 2^15, the
 * divisor from 2^-50 to 2^30, the update's magnitude at least 2^-120, and a residual is a multiple
 * of 2^-149.
 */
static inline bool scalars_are_ordinary(const struct tsr_step_scalars *s)
{
	return s->root_correction2 >= 0x1p-14f && s->root_correction2 <= 1.0f && s->eps >= 0.0f &&
	       s->eps <= 0x1p20f;
}

/* Whether a positive number is at least @from and below @to; one comparison. */
static __device__ __forceinline__ bool is_between(float x, float from, float to)
{
	const uint32_t least = tsr_bits_from_f32(from);

	return tsr_bits_from_f32(x) - least < tsr_bits_from_f32(to) - least;
}

/* @up: rate * momentum. */
static __device__ __forceinline__ bool are_ordinary(float up, float variance)
{
	return is_between(variance, 0x1p-100f, 0x1p30f) & is_between(fabsf(up), 0x1p-90f, 0x1p90f);
}

/* @inverse: RN(1 / root_correction2); @root: of the variance. */
static __device__ __forceinline__ float adam_update_ordinary(const struct tsr_step_scalars *s,
							     float up, float root, float inverse)
{
	const float divisor = tsr_near_quotient(root, s->root_correction2, inverse) + s->eps;

	return tsr_quotient_ordinary(up, divisor);
}

/*
 * What a rule does, except for Adam's update; NaNs are not made canonical.  stepped() is the weight by
 * such an update, from the moments that have become; @inverse as for adam_update_ordinary().
 * needs_whole_update: even an update far below the last place of the weight can decide a bit; then
 * update_part() is what must not be too small.
 */
template <class rule> struct by_update {
	static __device__ __forceinline__ float stepped(const struct tsr_step_scalars *s, float w,
							float m, float root, float inverse)
	{
		return rule::weight(s, w, adam_update_ordinary(s, s->rate * m, root, inverse));
	}
	static __device__ __forceinline__ float update_part(const struct tsr_step_scalars *s,
							    float m)
	{
		return s->rate * m;
	}
};

struct adam : by_update<adam> {
	static const bool needs_whole_update = false;

	static __device__ __forceinline__ struct tsr_step_values moments(
		const struct tsr_step_scalars *s, float g, struct tsr_step_values x)
	{
		return tsr_step_moments(s, tsr_step_l2(s, g, x.weight), x);
	}
	static __device__ __forceinline__ float weight(const struct tsr_step_scalars *s, float w,
						       float update)
	{
		(void)s;
		return tsr_step_adam_weight(w, update);
	}
};

struct adamw : by_update<adamw> {
	static const bool needs_whole_update = false;

	static __device__ __forceinline__ struct tsr_step_values moments(
		const struct tsr_step_scalars *s, float g, struct tsr_step_values x)
	{
		return tsr_step_moments(s, g, x);
	}
	static __device__ __forceinline__ float weight(const struct tsr_step_scalars *s, float w,
						       float update)
	{
		return tsr_step_adam_weight(w * s->keep, update);
	}
};

struct flash_adam : by_update<flash_adam> {
	static const bool needs_whole_update = true;

	static __device__ __forceinline__ struct tsr_step_values moments(
		const struct tsr_step_scalars *s, float g, struct tsr_step_values x)
	{
		return tsr_step_flash_moments(s, tsr_step_l2(s, g, x.weight), x);
	}
	static __device__ __forceinline__ float weight(const struct tsr_step_scalars *s, float w,
						       float update)
	{
		return tsr_step_flash_adam_weight(s, w, update);
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
	static __device__ __forceinline__ float update_part(const struct tsr_step_scalars *s,
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
	static __device__ __forceinline__ float update_part(const struct tsr_step_scalars *s,
							    float m)
	{
		return (void)s, m;
	}
};

template <class rule, int N>
static __device__ __forceinline__ void run_adam(const struct step_args *a, bool inside,
						const float *g, float *w, float *m, float *v)
{
	const struct tsr_step_scalars *s = &a->scalars;
	bool ordinary = a->ordinary;

#pragma unroll
	for (int k = 0; k < N; k++) {
		const struct tsr_step_values x = rule::moments(s, g[k], { w[k], m[k], v[k] });

		m[k] = x.momentum;
		v[k] = x.variance;
		ordinary &= are_ordinary(s->rate * x.momentum, x.variance);
	}
	if (__all_sync(TSR_WHOLE_WARP, ordinary || !inside)) {
		const float d = s->root_correction2;
		const float inverse = tsr_reciprocal_step(d, tsr_reciprocal_estimate(d));

#pragma unroll
		for (int k = 0; k < N; k++)
			w[k] = tsr_one_nan(rule::stepped(s, w[k], m[k], tsr_root_ordinary(v[k]),
							 inverse));
		return;
	}
#pragma unroll
	for (int k = 0; k < N; k++) {
		const struct tsr_step_values x = tsr_step_one_nans({ w[k], m[k], v[k] });

		w[k] = tsr_one_nan(rule::weight(s, w[k], tsr_step_adam_update(s, x)));
		m[k] = x.momentum;
		v[k] = x.variance;
	}
}

/* A tile, by all threads of a warp. */
template <int NSTATES, int N, int UNROLL>
static __device__ __forceinline__ void run_tile(const struct step_args *a, bool inside,
						const float *g, float *w, float *m, float *v)
{
	if (NSTATES == 2 && a->rule == RULE_ADAM)
		run_adam<adam, N>(a, inside, g, w, m, v);
	else if (NSTATES == 2 && a->rule == RULE_ADAMW)
		run_adam<adamw, N>(a, inside, g, w, m, v);
	else
		run_rule<NSTATES, N, UNROLL>(a, g, w, m, v);
}

#endif
