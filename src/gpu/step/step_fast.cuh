/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step of FlashOptim's state (weights bf16+ulp8, momentum softsign8, variance sqrt8, scales e8m8), where
 * all numbers are ordinary: on an H200 AdamW is 2.2 times as fast as by step_tile(), Lion and SGD 1.5 times.
 *
 * What has to hold for every element of a warp:
 *
 * - the old narrow weight is neither zero nor subnormal, nor special, which would make the new one
 *   so;
 * - the new narrow weight's magnitude is from 2^-38 to 2^100.  So, where the update is rounded before
 *   it is added, it does not matter what one below 2^-65 was: the sum is the other term;
 * - new variances are from 2^-100 to 2^60, the largest one of a group at least 2^-80, and its largest new
 *   momentum from 2^-60 to 2^60.
 */
#ifndef TSR_GPU_STEP_FAST_CUH
#define TSR_GPU_STEP_FAST_CUH

#include "gpu/step/step_tile.cuh"

#define FAST_TILE 16 /* elements of a thread */
#define FAST_TEAM (TSR_GROUP_DEFAULT / FAST_TILE)
/* Few threads, so that the next block can begin soon; 7 of these leave 72 registers. */
#define FAST_BLOCK 128u
#define FAST_BLOCKS 7

/*
 * And for the scalars, so that quotients are those of tsr_quotient_ordinary() unless the update is
 * below 2^-65:
 */
static inline bool scalars_are_fast(const struct tsr_step_scalars *s, enum tsr_step_rule rule)
{
	return rule < TSR_RULE_ADAM ||
	       (rule <= TSR_RULE_FLASH_ADAM && s->from_grad == 0.0f && s->eps >= 0x1p-30f &&
		s->eps <= 0x1p20f && s->root_correction2 >= 0x1p-8f &&
		s->root_correction2 <= 1.0f && fabsf(s->rate) <= 0x1p20f);
}

/* --- Memory ------------------------------------------------------------------------------------ */

/*
 * What a thread reads, as it is stored.  All loads are issued before any result is used: a branch on
 * the format of one array would delay the load of the next.
 */
struct fast_words {
	uint32_t grad[FAST_TILE]; /* half of them if they are narrow */
	uint32_t narrow[FAST_TILE / 2], correction[FAST_TILE / 4];
	uint32_t state[TSR_SLOTS][FAST_TILE / 4], scale[TSR_SLOTS];
};

/* The scale of a tile's group. */
static __device__ __forceinline__ uint16_t *scale_at(const struct coded_planes &p, uint32_t at)
{
	return (uint16_t *)p.plane[1] + at / FAST_TEAM;
}

template <int NSTATES>
static __device__ __forceinline__ void fast_load(const struct step_args *a, enum tsr_dtype dtype,
						 uint32_t at, struct fast_words *x)
{
	const struct coded_planes *slot = a->slot;

	if (dtype == TSR_F32)
		load_tile<uint32_t, FAST_TILE>(a->grad, at, x->grad);
	else
		load_tile<uint32_t, FAST_TILE / 2>(a->grad, at, x->grad);
	load_tile<uint32_t, FAST_TILE / 2>(slot[TSR_SLOT_WEIGHT].plane[0], at, x->narrow);
	load_tile<uint32_t, FAST_TILE / 4>(slot[TSR_SLOT_WEIGHT].plane[1], at, x->correction);
#pragma unroll
	for (unsigned p = TSR_SLOT_MOMENTUM; p <= NSTATES; p++)
		load_tile<uint32_t, FAST_TILE / 4>(slot[p].plane[0], at, x->state[p]);
#pragma unroll
	for (unsigned p = TSR_SLOT_MOMENTUM; p <= NSTATES; p++)
		x->scale[p] = *scale_at(slot[p], at);
}

/* --- Decoding ---------------------------------------------------------------------------------- */

/* The narrow floats of a pair. */
static __device__ __forceinline__ float low_of(uint32_t pair)
{
	return tsr_f32_from_bits(pair << 16);
}

static __device__ __forceinline__ float high_of(uint32_t pair)
{
	return tsr_f32_from_bits(pair & 0xffff0000u);
}

static __device__ __forceinline__ void fast_gradients(enum tsr_dtype dtype,
						      const struct fast_words *x, float *g)
{
#pragma unroll
	for (int k = 0; k < FAST_TILE; k += 2) {
		const uint32_t pair = x->grad[k / 2];

		if (dtype == TSR_F32) {
			g[k] = tsr_f32_from_bits(x->grad[k]);
			g[k + 1] = tsr_f32_from_bits(x->grad[k + 1]);
		} else if (dtype == TSR_BF16) {
			g[k] = low_of(pair);
			g[k + 1] = high_of(pair);
		} else { /* any NaN will do: a step with one is not ordinary */
			g[k] = tsr_f16_widen(pair & 0xffff);
			g[k + 1] = tsr_f16_widen(pair >> 16);
		}
	}
}

static __device__ __forceinline__ void fast_weights(struct tsr_masks masks,
						    const struct fast_words *x, float *w)
{
#pragma unroll
	for (int k = 0; k < FAST_TILE; k += 2) {
		const uint32_t pair = x->narrow[k / 2];
		const uint32_t flipped = tsr_flip_signed_codes(x->correction[k / 4]);

		w[k] = tsr_bf16_ulp8_join(masks, low_of(pair), pair << 16, flipped, k % 4);
		w[k + 1] = tsr_bf16_ulp8_join(masks, high_of(pair), pair, flipped, k % 4 + 1);
	}
}

template <int NSTATES>
static __device__ __forceinline__ void fast_states(struct tsr_masks masks,
						   const struct fast_words *x, float *m, float *v)
{
	const float m_scale = tsr_f32_from_e8m8(x->scale[TSR_SLOT_MOMENTUM]);

#pragma unroll
	for (int k = 0; k < FAST_TILE; k++) {
		const uint32_t flipped = tsr_flip_signed_codes(x->state[TSR_SLOT_MOMENTUM][k / 4]);

		m[k] = m_scale * tsr_softsign_ratio(tsr_signed_code(masks, flipped, k % 4));
	}
	if constexpr (NSTATES == 2) {
		const float v_scale = tsr_f32_from_e8m8(x->scale[TSR_SLOT_VARIANCE]);

#pragma unroll
		for (int k = 0; k < FAST_TILE; k++)
			v[k] = tsr_sqrt_value(
				tsr_unsigned_code(masks, x->state[TSR_SLOT_VARIANCE][k / 4], k % 4),
				v_scale);
	}
}

/* --- Stepping ---------------------------------------------------------------------------------- */

/* The result of a step, and what decides whether it is ordinary. */
struct fast_tile {
	float w[FAST_TILE], m[FAST_TILE];
	float v[FAST_TILE]; /* and then their roots */
	uint32_t narrow[FAST_TILE / 2]; /* pairs of weights, the new ones */
	float least_v, largest_v; /* of the variances of the thread */
	float least_up; /* of updates, where even those far below the last place can decide a bit */
};

/* Whether a positive number is at least @from and below @to; one comparison. */
static __device__ __forceinline__ bool is_between(float x, float from, float to)
{
	const uint32_t least = tsr_bits_from_f32(from);

	return tsr_bits_from_f32(x) - least < tsr_bits_from_f32(to) - least;
}

/*
 * An element of a rule with a variance, as its formula in step_math.h but for the slow paths of root and
 * quotients, and NaNs, which are not made canonical.  @inverse: RN(1 / root_correction2).
 */
template <enum tsr_step_rule RULE>
static __device__ __forceinline__ void fast_adam(const struct tsr_step_scalars *s, float g,
						 float inverse, int k, struct fast_tile *t)
{
	const float l2 = RULE == TSR_RULE_ADAMW ? g : tsr_step_l2(s, g, t->w[k]);
	const struct tsr_step_values old = { t->w[k], t->m[k], t->v[k], 0 };
	const struct tsr_step_values x = RULE == TSR_RULE_FLASH_ADAM
						 ? tsr_step_flash_moments(s, l2, old)
						 : tsr_step_moments(s, l2, old);
	const float root = tsr_root_ordinary(x.variance), up = s->rate * x.momentum;
	const float divisor = tsr_near_quotient(root, s->root_correction2, inverse) + s->eps;
	const float update = tsr_quotient_ordinary(up, divisor);

	t->m[k] = x.momentum;
	t->v[k] = root;
	t->least_v = fminf(t->least_v, x.variance);
	t->largest_v = tsr_max_or_nan(t->largest_v, x.variance);
	if (RULE == TSR_RULE_FLASH_ADAM) {
		t->least_up = fminf(t->least_up, fabsf(up));
		t->w[k] = tsr_step_flash_adam_weight(s, t->w[k], update);
	} else {
		t->w[k] = tsr_step_adam_weight(RULE == TSR_RULE_ADAMW ? t->w[k] * s->keep : t->w[k],
					       update);
	}
}

#define EACH(...) \
	do { \
		_Pragma("unroll") for (int k = 0; k < FAST_TILE; k++) \
		{ \
			__VA_ARGS__; \
		} \
	} while (0)
#define RAW(rule) \
	EACH(const struct tsr_step_values x = rule(s, g[k], { t->w[k], t->m[k], 0.0f, 0 }); \
	     t->w[k] = x.weight; t->m[k] = x.momentum)

/* Returns whether the variances are ordinary, but for the largest one. */
template <int NSTATES>
static __device__ __forceinline__ bool fast_run(const struct step_args *a, const float *g,
						struct fast_tile *t)
{
	struct tsr_step_scalars scalars = a->scalars;
	const struct tsr_step_scalars *s = &scalars;

	scalars.from_grad = 0.0f;
	if constexpr (NSTATES == 2) {
		const float d = s->root_correction2;
		const float inverse = tsr_reciprocal_step(d, tsr_reciprocal_estimate(d));

		t->least_v = t->least_up = INFINITY;
		t->largest_v = 0.0f;
		if (a->rule == TSR_RULE_ADAMW)
			EACH(fast_adam<TSR_RULE_ADAMW>(s, g[k], inverse, k, t));
		else if (a->rule == TSR_RULE_ADAM)
			EACH(fast_adam<TSR_RULE_ADAM>(s, g[k], inverse, k, t));
		else
			EACH(fast_adam<TSR_RULE_FLASH_ADAM>(s, g[k], inverse, k, t));
		return t->least_v >= 0x1p-100f && t->least_up >= 0x1p-80f;
	} else {
		if (a->rule == TSR_RULE_SGD)
			RAW(tsr_step_sgd_raw);
		else if (a->rule == TSR_RULE_LION)
			RAW(tsr_step_lion_raw);
		else
			RAW(tsr_step_flash_lion_raw);
		return true;
	}
}

#undef RAW
#undef EACH

/* Whether the weights that were there are neither zero nor subnormal. */
static __device__ __forceinline__ bool fast_were_normal(const struct fast_words *x)
{
	uint32_t least = x->narrow[0] & 0x7fff7fffu;

#pragma unroll
	for (int k = 1; k < FAST_TILE / 2; k++)
		least = tsr_bf16_pair_min(least, x->narrow[k] & 0x7fff7fffu);
	return (least & 0xffff) >= 0x80 && least >> 16 >= 0x80;
}

/* Round the weights; returns whether all are ordinary. */
static __device__ __forceinline__ bool fast_narrow(struct fast_tile *t)
{
	const uint32_t from = 0x2c80, to = 0x7180; /* 2^-38 and 2^100 */
	uint32_t least, largest;

#pragma unroll
	for (int k = 0; k < FAST_TILE; k += 2) {
		const uint32_t pair = tsr_bf16_pair(t->w[k], t->w[k + 1]);
		const uint32_t magnitude = pair & 0x7fff7fffu;

		t->narrow[k / 2] = pair;
		least = k ? tsr_bf16_pair_min(least, magnitude) : magnitude;
		largest = k ? tsr_bf16_pair_max(largest, magnitude) : magnitude;
	}
	return (least & 0xffff) >= from && least >> 16 >= from && (largest & 0xffff) < to &&
	       largest >> 16 < to;
}

/* --- Encoding ---------------------------------------------------------------------------------- */

/* Codes of a tile: element k is the lowest byte of what @code gives. */
template <class code_of>
static __device__ __forceinline__ void fast_codes(uint32_t *word, const code_of &code)
{
#pragma unroll
	for (int k = 0; k < FAST_TILE; k += 4) {
		const uint32_t byte[4] = { code(k), code(k + 1), code(k + 2), code(k + 3) };

		word[k / 4] = tsr_word_of_bytes(byte);
	}
}

/* Of the threads that have a group. */
static __device__ __forceinline__ float largest_of_two(float x)
{
	static_assert(FAST_TEAM == 2, "two threads have a group");
	return tsr_max_or_nan(x, __shfl_xor_sync(TSR_WHOLE_WARP, x, 1));
}

/* Store the scale of a group, by the first thread of the team, and return what elements are divided by. */
static __device__ __forceinline__ float store_scale(const struct coded_planes &p, uint32_t at,
						    bool inside, float scale, uint32_t most)
{
	const uint32_t code = ::min(tsr_e8m8_from_f32(scale), most);

	if (inside && threadIdx.x % FAST_TEAM == 0)
		*scale_at(p, at) = (uint16_t)code;
	return tsr_f32_from_e8m8(code);
}

/* --- All of it --------------------------------------------------------------------------------- */

/*
 * Returns false, with nothing stored, unless all numbers of the warp are ordinary.  Usually gradients are
 * BF16: with BF16 the compiler knows it, and a tile takes some instructions less.
 */
template <bool BF16, int NSTATES>
static __device__ __forceinline__ bool fast_step(const struct step_args *a, uint32_t at,
						 bool inside)
{
	const enum tsr_dtype dtype = BF16 ? TSR_BF16 : a->grad_dtype;
	const struct coded_planes &weight = a->slot[TSR_SLOT_WEIGHT];
	const struct coded_planes &momentum = a->slot[TSR_SLOT_MOMENTUM];
	const struct coded_planes &variance = a->slot[TSR_SLOT_VARIANCE];
	uint32_t correction[FAST_TILE / 4], m[FAST_TILE / 4], v[FAST_TILE / 4];
	float g[FAST_TILE], largest_m = 0.0f, largest_v = 0.0f, scale;
	struct fast_words x;
	struct fast_tile t;
	bool ordinary;

	fast_load<NSTATES>(a, dtype, at, &x);
	fast_gradients(dtype, &x, g);
	fast_weights(a->masks, &x, t.w);
	fast_states<NSTATES>(a->masks, &x, t.m, t.v);
	ordinary = fast_were_normal(&x);
	ordinary &= fast_run<NSTATES>(a, g, &t);
	ordinary &= fast_narrow(&t);
#pragma unroll
	for (int k = 0; k < FAST_TILE; k++)
		largest_m = tsr_max_or_nan(largest_m, fabsf(t.m[k]));
	/* A gradient that is not finite makes a momentum that is not. */
	largest_m = largest_of_two(largest_m);
	ordinary &= is_between(largest_m, 0x1p-60f, 0x1p60f);
	if (NSTATES == 2) {
		largest_v = largest_of_two(t.largest_v);
		ordinary &= is_between(largest_v, 0x1p-80f, 0x1p60f);
	}
	if (!__all_sync(TSR_WHOLE_WARP, ordinary || !inside))
		return false;
	fast_codes(correction, [&](int k) {
		const uint32_t pair = t.narrow[k / 2];

		return tsr_bf16_ulp8_correction(a->masks, t.w[k],
						k % 2 ? high_of(pair) : low_of(pair),
						k % 2 ? pair : pair << 16);
	});
	scale = store_scale(momentum, at, inside, largest_m, tsr_softsign_e8m8_max());
	fast_codes(m, [&](int k) {
		return (uint32_t)tsr_softsign_code_ordinary(t.m[k], scale, a->masks.sign);
	});
	if (NSTATES == 2) {
		scale = store_scale(variance, at, inside, tsr_root_ordinary(largest_v),
				    tsr_sqrt_e8m8_max());
		scale = tsr_quotient_ordinary(255.0f, scale);
		/* Quotients below 0.5, of which the code would be 0, count as that. */
		fast_codes(v, [&](int k) {
			return (uint32_t)(int32_t)(fmaxf(t.v[k] * scale, 0.5f) + 0.5f);
		});
	}
	if (!inside)
		return true;
	store_tile<uint32_t, FAST_TILE / 2>(weight.plane[0], at, t.narrow);
	store_tile<uint32_t, FAST_TILE / 4>(weight.plane[1], at, correction);
	store_tile<uint32_t, FAST_TILE / 4>(momentum.plane[0], at, m);
	if (NSTATES == 2)
		store_tile<uint32_t, FAST_TILE / 4>(variance.plane[0], at, v);
	return true;
}

#endif
