/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of FlashOptim's state, weights bf16+ulp8, momentum softsign8 and variance sqrt8, and of the
 * same with linear codes, where all numbers are ordinary: AdamW takes 78 instructions per parameter
 * instead of 117 of step_tile().
 */
#ifndef TSR_GPU_STEP_FLASH_CUH
#define TSR_GPU_STEP_FLASH_CUH

#include "gpu/step/step_rules.cuh"

/*
 * What has to hold for every element of a warp:
 *
 * - the old narrow weight is neither zero nor subnormal, nor special, which would make the new one
 *   so;
 * - the new narrow weight's magnitude is from 2^-38 to 2^100.  So, where the update is rounded before
 *   it is added, it does not matter what one below 2^-65 was: the sum is the other term;
 * - the largest new momentum of each group is from 2^-60 to 2^60, so that its unit is 1;
 * - new variances are from 2^-100 to 2^60, the largest of each group at least 2^-80, or 2^-60 where
 *   codes are linear, so that its unit is 1.
 *
 * And for the scalars, so that quotients are those of tsr_quotient_ordinary() unless the update is
 * below 2^-65:
 */
static inline bool scalars_are_flash(const struct tsr_step_scalars *s, enum step_rule rule)
{
	if (rule < RULE_ADAM)
		return true;
	if (rule == RULE_COAT_ADAMW)
		return s->correction1 >= 0x1p-10f && s->correction1 <= 1.0f && s->eps >= 0x1p-30f &&
		       s->eps <= 0x1p20f && s->root_correction2 >= 0x1p-8f &&
		       s->root_correction2 <= 1.0f && fabsf(s->rate) <= 1.0f;
	if (rule == RULE_BITSANDBYTES_ADAM)
		return s->keep >= 0x1p-10f && s->keep <= 1.0f && s->eps >= 0x1p-36f &&
		       s->eps <= 0x1p20f && fabsf(s->rate) <= 1.0f;
	return s->from_grad == 0.0f && s->eps >= 0x1p-30f && s->eps <= 0x1p20f &&
	       s->root_correction2 >= 0x1p-8f && s->root_correction2 <= 1.0f &&
	       fabsf(s->rate) <= 0x1p20f;
}

/*
 * Usually gradients are BF16 and scales e8m8: where the compiler knows it, a tile of 8 takes some 60
 * instructions less.
 */
template <bool USUAL>
static __device__ __forceinline__ enum tsr_dtype flash_grad_dtype(const struct step_args *a)
{
	return USUAL ? TSR_BF16 : a->grad_dtype;
}

template <bool USUAL>
static __device__ __forceinline__ enum tsr_scale flash_scale(const struct step_args *a,
							     unsigned part)
{
	return USUAL ? TSR_SCALE_E8M8 : a->part[part].scale;
}

static inline bool step_is_usual(const struct step_args *a)
{
	return a->grad_dtype == TSR_BF16 && a->part[TSR_PART_MOMENTUM].scale == TSR_SCALE_E8M8 &&
	       a->part[TSR_PART_VARIANCE].scale == TSR_SCALE_E8M8;
}

/* Threads of a block: few, so that the next one can begin soon. */
#define FLASH_BLOCK 128u

/* --- Memory ------------------------------------------------------------------------------------ */

/*
 * What a thread reads, as it is stored.  All loads are issued before any result is used: a branch on
 * the format of one array would delay the load of the next.
 */
template <int N> struct flash_words {
	uint32_t grad[N]; /* half of them if they are narrow */
	uint32_t narrow[N / 2], correction[N / 4];
	uint32_t momentum[N / 4], momentum_scale;
	uint32_t variance[N / 4], variance_scale;
};

/* Words of a plane's tile in this block: of thread @thread. */
template <int WORDS>
static __device__ __forceinline__ void load_words(const void *plane, unsigned thread, uint32_t *x)
{
	const uint32_t *block = (const uint32_t *)plane +
				(uint64_t)blockIdx.x * FLASH_BLOCK * WORDS;

	load_tile<uint32_t, WORDS>(block, thread, x);
}

template <int WORDS>
static __device__ __forceinline__ void store_words(void *plane, const uint32_t *x)
{
	uint32_t *block = (uint32_t *)plane + (uint64_t)blockIdx.x * FLASH_BLOCK * WORDS;

	store_tile<uint32_t, WORDS>(block, threadIdx.x, x);
}

template <int N>
static __device__ __forceinline__ const void *block_scales(const void *scales,
							   enum tsr_scale format)
{
	const uint64_t first = (uint64_t)blockIdx.x * (FLASH_BLOCK / tsr_team(N));

	return (const char *)scales + first * (format == TSR_SCALE_F32 ? 4 : 2);
}

template <bool USUAL, int NSTATES, int N>
static __device__ __forceinline__ void flash_load(const struct step_args *a, unsigned thread,
						  struct flash_words<N> *x)
{
	const struct step_part *part = a->part;
	const enum tsr_scale m = flash_scale<USUAL>(a, TSR_PART_MOMENTUM);
	const enum tsr_scale v = flash_scale<USUAL>(a, TSR_PART_VARIANCE);
	const unsigned group = thread / tsr_team(N);

	if (flash_grad_dtype<USUAL>(a) == TSR_F32)
		load_words<N>(a->grad, thread, x->grad);
	else
		load_words<N / 2>(a->grad, thread, x->grad);
	load_words<N / 2>(part[TSR_PART_WEIGHT].plane[0], thread, x->narrow);
	load_words<N / 4>(part[TSR_PART_WEIGHT].plane[1], thread, x->correction);
	load_words<N / 4>(part[TSR_PART_MOMENTUM].plane[0], thread, x->momentum);
	x->momentum_scale = load_scale(block_scales<N>(part[TSR_PART_MOMENTUM].plane[1], m), m,
				       group);
	if (NSTATES == 2) {
		load_words<N / 4>(part[TSR_PART_VARIANCE].plane[0], thread, x->variance);
		x->variance_scale = load_scale(block_scales<N>(part[TSR_PART_VARIANCE].plane[1], v),
					       v, group);
	}
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

template <int N>
static __device__ __forceinline__ void flash_gradients(enum tsr_dtype dtype,
						       const struct flash_words<N> *x, float *g)
{
	if (dtype == TSR_F32) {
#pragma unroll
		for (int k = 0; k < N; k++)
			g[k] = tsr_f32_from_bits(x->grad[k]);
	} else if (dtype == TSR_BF16) {
#pragma unroll
		for (int k = 0; k < N; k += 2) {
			g[k] = low_of(x->grad[k / 2]);
			g[k + 1] = high_of(x->grad[k / 2]);
		}
	} else { /* any NaN will do: a step with one is not ordinary */
#pragma unroll
		for (int k = 0; k < N; k += 2) {
			g[k] = tsr_f16_widen(x->grad[k / 2] & 0xffff);
			g[k + 1] = tsr_f16_widen(x->grad[k / 2] >> 16);
		}
	}
}

template <int N>
static __device__ __forceinline__ void flash_weights(struct tsr_masks masks,
						     const struct flash_words<N> *x, float *w)
{
#pragma unroll
	for (int k = 0; k < N; k += 2) {
		const uint32_t pair = x->narrow[k / 2];
		const uint32_t flipped = tsr_flip_signed_codes(x->correction[k / 4]);

		w[k] = tsr_bf16_ulp8_join(masks, low_of(pair), pair << 16, flipped, k % 4);
		w[k + 1] = tsr_bf16_ulp8_join(masks, high_of(pair), pair, flipped, k % 4 + 1);
	}
}

template <class codec, int N>
static __device__ __forceinline__ void flash_momentum(struct tsr_masks masks,
						      const struct flash_words<N> *x, float scale,
						      float *m)
{
#pragma unroll
	for (int k = 0; k < N; k++) {
		const uint32_t flipped = tsr_flip_signed_codes(x->momentum[k / 4]);

		m[k] = codec::value(tsr_signed_code(masks, flipped, k % 4), scale);
	}
}

template <class codec, int N>
static __device__ __forceinline__ void flash_variance(struct tsr_masks masks,
						      const struct flash_words<N> *x, float scale,
						      float *v)
{
#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] = codec::value(tsr_unsigned_code(masks, x->variance[k / 4], k % 4), scale);
}

/* --- Stepping ---------------------------------------------------------------------------------- */

/* The result of a step, and what decides whether it is ordinary. */
template <int N> struct flash_tile {
	float w[N], m[N];
	float v[N]; /* or their roots, if those are encoded */
	uint32_t narrow[N / 2]; /* pairs of weights, the new ones */
	float least_v, largest_v; /* of the variances */
	float least_up; /* of update_part(), where the rule needs it */
	float largest_m;
};

/* A rule with a variance; the extremes are those of the thread. */
template <class rule, bool ROOTS, int N>
static __device__ __forceinline__ void flash_adam_tile(const struct tsr_step_scalars *s,
						       const float *g, struct flash_tile<N> *t)
{
	const float d = s->root_correction2;
	const float inverse = tsr_reciprocal_step(d, tsr_reciprocal_estimate(d));

	t->least_v = t->least_up = INFINITY;
	t->largest_v = 0.0f;
#pragma unroll
	for (int k = 0; k < N; k++) {
		const struct tsr_step_values x = rule::moments(s, g[k],
							       { t->w[k], t->m[k], t->v[k] });
		const float root = tsr_root_ordinary(x.variance);

		t->m[k] = x.momentum;
		t->v[k] = ROOTS ? root : x.variance;
		t->w[k] = rule::stepped(s, t->w[k], x.momentum, root, inverse);
		t->least_v = fminf(t->least_v, x.variance);
		t->largest_v = tsr_max_or_nan(t->largest_v, x.variance);
		if (rule::needs_whole_update)
			t->least_up = fminf(t->least_up, fabsf(rule::update_part(s, x.momentum)));
	}
}

/* The same for a group of the team; returns whether all variances are ordinary. */
template <class rule, class variance, int N>
static __device__ __forceinline__ bool flash_adam_group(const struct tsr_step_scalars *s,
							const float *g, struct flash_tile<N> *t)
{
	flash_adam_tile<rule, variance::takes_roots, N>(s, g, t);
	t->largest_v = team_max<N>(t->largest_v);
	return t->least_v >= 0x1p-100f &&
	       is_between(t->largest_v, variance::flash_least(), 0x1p60f) &&
	       t->least_up >= 0x1p-80f;
}

#define RUN(rule) \
	do { \
		_Pragma("unroll") for (int k = 0; k < N; k++) \
		{ \
			const struct tsr_step_values x = rule(s, g[k], \
							      { t->w[k], t->m[k], 0.0f }); \
\
			t->w[k] = x.weight; \
			t->m[k] = x.momentum; \
		} \
	} while (0)

template <int NSTATES, class variance, int N>
static __device__ __forceinline__ bool flash_run(const struct step_args *a, const float *g,
						 struct flash_tile<N> *t)
{
	struct tsr_step_scalars scalars = a->scalars;
	const struct tsr_step_scalars *s = &scalars;

	scalars.from_grad = 0.0f;
	if constexpr (NSTATES == 2) {
		if (a->rule == RULE_ADAMW)
			return flash_adam_group<adamw, variance, N>(s, g, t);
		if (a->rule == RULE_ADAM)
			return flash_adam_group<adam, variance, N>(s, g, t);
		return flash_adam_group<flash_adam, variance, N>(s, g, t);
	} else {
		if (a->rule == RULE_SGD)
			RUN(tsr_step_sgd_raw);
		else if (a->rule == RULE_LION)
			RUN(tsr_step_lion_raw);
		else
			RUN(tsr_step_flash_lion_raw);
		return true;
	}
}

#undef RUN

/* Whether the weights that were there are neither zero nor subnormal. */
template <int N>
static __device__ __forceinline__ bool flash_were_normal(const struct flash_words<N> *x)
{
	uint32_t least = x->narrow[0] & 0x7fff7fffu;

#pragma unroll
	for (int k = 1; k < N / 2; k++)
		least = tsr_bf16_pair_min(least, x->narrow[k] & 0x7fff7fffu);
	return (least & 0xffff) >= 0x80 && least >> 16 >= 0x80;
}

/* Round the weights; returns whether all are ordinary. */
template <int N> static __device__ __forceinline__ bool flash_narrow(struct flash_tile<N> *t)
{
	const uint32_t from = 0x2c80, to = 0x7180; /* 2^-38 and 2^100 */
	uint32_t least, largest;

#pragma unroll
	for (int k = 0; k < N; k += 2) {
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

template <int N>
static __device__ __forceinline__ void flash_encode_weights(struct tsr_masks masks,
							    const struct flash_tile<N> *t,
							    uint32_t *correction)
{
#pragma unroll
	for (int k = 0; k < N; k += 4) {
		uint32_t byte[4];

#pragma unroll
		for (int i = 0; i < 4; i += 2) {
			const uint32_t pair = t->narrow[(k + i) / 2];

			byte[i] = tsr_bf16_ulp8_correction(masks, t->w[k + i], low_of(pair),
							   pair << 16);
			byte[i + 1] = tsr_bf16_ulp8_correction(masks, t->w[k + i + 1],
							       high_of(pair), pair);
		}
		correction[k / 4] = tsr_word_of_bytes(byte);
	}
}

/* A tile of momentum or variance; @floor as flash_floor() gives it. */
template <class codec, int N>
static __device__ __forceinline__ void flash_encode(struct tsr_masks masks, const float *x,
						    float scale, float floor, uint32_t *code)
{
	const float factor = codec::flash_factor(scale);

#pragma unroll
	for (int k = 0; k < N; k += 4) {
		uint32_t byte[4];

#pragma unroll
		for (int i = 0; i < 4; i++)
			byte[i] = codec::flash_code(masks, x[k + i], factor, floor);
		code[k / 4] = tsr_word_of_bytes(byte);
	}
}

/* put_scale() of the group of this thread, by the first of its team. */
template <bool USUAL, int N>
static __device__ __forceinline__ float flash_put_scale(const struct step_args *a, unsigned part,
							bool inside, float scale, uint32_t e8m8_max)
{
	const enum tsr_scale format = flash_scale<USUAL>(a, part);
	const struct scale_plane plane = { (void *)block_scales<N>(a->part[part].plane[1], format),
					   format };
	struct scale_events events = { 0, 0 };
	const bool stores = inside && threadIdx.x % tsr_team(N) == 0;
	const float divisor = put_scale(plane, threadIdx.x / tsr_team(N), scale, e8m8_max, stores,
					&events);

	if (format == TSR_SCALE_F16 && a->report) {
		tsr_add_count(&a->report->encode[part].scale_underflow, events.underflow);
		tsr_add_count(&a->report->encode[part].scale_overflow, events.overflow);
	}
	return divisor;
}

template <bool USUAL, int NSTATES, class momentum, class variance, int N>
static __device__ __forceinline__ void flash_store(const struct step_args *a, bool inside,
						   const struct flash_tile<N> *t)
{
	const struct step_part *part = a->part;
	uint32_t correction[N / 4], m[N / 4], v[N / 4];
	float scale;

	flash_encode_weights<N>(a->masks, t, correction);
	scale = flash_put_scale<USUAL, N>(a, TSR_PART_MOMENTUM, inside, t->largest_m,
					  momentum::e8m8_max());
	flash_encode<momentum, N>(a->masks, t->m, scale, 0.0f, m);
	if constexpr (NSTATES == 2) {
		const bool roots = variance::takes_roots;
		const float peak = roots ? tsr_root_ordinary(t->largest_v) : t->largest_v;

		scale = flash_put_scale<USUAL, N>(a, TSR_PART_VARIANCE, inside, peak,
						  variance::e8m8_max());
		flash_encode<variance, N>(a->masks, t->v, scale,
					  flash_floor(flash_scale<USUAL>(a, TSR_PART_VARIANCE)), v);
	}
	if (!inside)
		return;
	store_words<N / 2>(part[TSR_PART_WEIGHT].plane[0], t->narrow);
	store_words<N / 4>(part[TSR_PART_WEIGHT].plane[1], correction);
	store_words<N / 4>(part[TSR_PART_MOMENTUM].plane[0], m);
	if (NSTATES == 2)
		store_words<N / 4>(part[TSR_PART_VARIANCE].plane[0], v);
}

/* --- All of it --------------------------------------------------------------------------------- */

/*
 * A step as of step_tile(); returns false, with nothing stored, unless all numbers of the warp
 * are ordinary.  A gradient that is not finite makes a momentum that is not.
 */
template <bool USUAL, int NSTATES, class momentum, class variance, int N>
static __device__ __forceinline__ bool flash_step(const struct step_args *a, bool inside)
{
	const unsigned thread = inside ? threadIdx.x : 0; /* what others read is not used */
	struct flash_words<N> x;
	struct flash_tile<N> t;
	float g[N], scale, largest = 0.0f;
	bool ordinary;

	flash_load<USUAL, NSTATES, N>(a, thread, &x);
	flash_gradients<N>(flash_grad_dtype<USUAL>(a), &x, g);
	flash_weights<N>(a->masks, &x, t.w);
	scale = scale_value(x.momentum_scale, flash_scale<USUAL>(a, TSR_PART_MOMENTUM));
	flash_momentum<momentum, N>(a->masks, &x, scale, t.m);
	if constexpr (NSTATES == 2) {
		scale = scale_value(x.variance_scale, flash_scale<USUAL>(a, TSR_PART_VARIANCE));
		flash_variance<variance, N>(a->masks, &x, scale, t.v);
	}
	ordinary = flash_were_normal<N>(&x);
	ordinary &= flash_run<NSTATES, variance, N>(a, g, &t);
	ordinary &= flash_narrow<N>(&t);
#pragma unroll
	for (int k = 0; k < N; k++)
		largest = tsr_max_or_nan(largest, fabsf(t.m[k]));
	t.largest_m = team_max<N>(largest);
	ordinary &= is_between(t.largest_m, 0x1p-60f, 0x1p60f);
	if (!__all_sync(TSR_WHOLE_WARP, ordinary || !inside))
		return false;
	flash_store<USUAL, NSTATES, momentum, variance, N>(a, inside, &t);
	return true;
}

#endif
