/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast path of steps with weights bf16+ulp8, of 8-bit states: one template, of which the form of the
 * states is a parameter (fast_flash.cuh, fast_tight.cuh, fast_coded.cuh).  Where all numbers are ordinary,
 * AdamW on FlashOptim's state takes 78 instructions per parameter instead of 117 of step_tile().
 *
 * A form has
 *
 * - states, whose step_any() takes what is not ordinary; tile, the elements of a thread, and how kernels
 *   are started: block, blocks, table_nbytes;
 * - any_order, whether it is for the rules of COAT and bitsandbytes, too; takes_roots, whether variances
 *   are encoded from their roots;
 * - prepare(), on the host, which gives the numbers that it needs, and refuses scalars;
 * - fill(), which makes the table that is in shared memory;
 * - load_scales(), and decode(), which says whether all of it is ordinary;
 * - measure(), of the new moments, likewise; and encode(), which stores the scales.
 */
#ifndef TSR_GPU_STEP_FAST_CUH
#define TSR_GPU_STEP_FAST_CUH

#include "gpu/step/step_tile.cuh"

/*
 * What has to hold for every element of a warp:
 *
 * - the old narrow weight is neither zero nor subnormal, nor special, which would make the new one
 *   so;
 * - the new narrow weight's magnitude is from 2^-38 to 2^100.  So, where the update is rounded before
 *   it is added, it does not matter what one below 2^-65 was: the sum is the other term;
 * - new variances are from 2^-100 to 2^60;
 * - what the form asks for.
 *
 * And for the scalars, so that quotients are those of tsr_quotient_ordinary() unless the update is
 * below 2^-65:
 */
static inline bool scalars_are_fast(const struct tsr_step_scalars *s, enum step_rule rule)
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
 * Usually gradients are BF16: with BF16 the compiler knows it, and a tile takes some instructions less.
 */
template <bool BF16>
static __device__ __forceinline__ enum tsr_dtype fast_grad_dtype(const struct step_args *a)
{
	return BF16 ? TSR_BF16 : a->grad_dtype;
}

/* --- Memory ------------------------------------------------------------------------------------ */

/* Tile number @index from @base on; @base, the same for all threads, is a multiple of a team. */
struct tile_place {
	uint64_t base;
	uint32_t index;
};

/*
 * What a thread reads, as it is stored.  All loads are issued before any result is used: a branch on
 * the format of one array would delay the load of the next.
 */
template <int N> struct fast_words {
	uint32_t grad[N]; /* half of them if they are narrow */
	uint32_t narrow[N / 2], correction[N / 4];
	uint32_t momentum[N / 4], variance[N / 4];
	uint32_t scale[TSR_SLOTS],
		row[TSR_SLOTS]; /* of the states; rows of codecs that store theirs */
};

template <int WORDS>
static __device__ __forceinline__ void load_words(const void *plane, struct tile_place at,
						  uint32_t *x)
{
	load_tile<uint32_t, WORDS>((const uint32_t *)plane + at.base * WORDS, at.index, x);
}

template <int WORDS>
static __device__ __forceinline__ void store_words(void *plane, struct tile_place at,
						   const uint32_t *x)
{
	store_tile<uint32_t, WORDS>((uint32_t *)plane + at.base * WORDS, at.index, x);
}

/* Entry of a tile's group, which the first thread of a team stores. */
template <class entry, int TEAM>
static __device__ __forceinline__ entry load_entry(const void *plane, struct tile_place at)
{
	return ((const entry *)plane + at.base / TEAM)[at.index / TEAM];
}

template <class entry, int TEAM>
static __device__ __forceinline__ void store_entry(void *plane, struct tile_place at, bool inside,
						   entry x)
{
	if (inside && threadIdx.x % TEAM == 0)
		((entry *)plane + at.base / TEAM)[at.index / TEAM] = x;
}

template <bool BF16, int NSTATES, int N>
static __device__ __forceinline__ void fast_load(const struct step_args *a, struct tile_place at,
						 struct fast_words<N> *x)
{
	const struct coded_planes *slot = a->slot;

	if (fast_grad_dtype<BF16>(a) == TSR_F32)
		load_words<N>(a->grad, at, x->grad);
	else
		load_words<N / 2>(a->grad, at, x->grad);
	load_words<N / 2>(slot[TSR_SLOT_WEIGHT].plane[0], at, x->narrow);
	load_words<N / 4>(slot[TSR_SLOT_WEIGHT].plane[1], at, x->correction);
	load_words<N / 4>(slot[TSR_SLOT_MOMENTUM].plane[0], at, x->momentum);
	if (NSTATES == 2)
		load_words<N / 4>(slot[TSR_SLOT_VARIANCE].plane[0], at, x->variance);
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
static __device__ __forceinline__ void fast_gradients(enum tsr_dtype dtype,
						      const struct fast_words<N> *x, float *g)
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
static __device__ __forceinline__ void fast_weights(struct tsr_masks masks,
						    const struct fast_words<N> *x, float *w)
{
#pragma unroll
	for (int k = 0; k < N; k += 2) {
		const uint32_t pair = x->narrow[k / 2];
		const uint32_t flipped = tsr_flip_signed_codes(x->correction[k / 4]);

		w[k] = tsr_bf16_ulp8_join(masks, low_of(pair), pair << 16, flipped, k % 4);
		w[k + 1] = tsr_bf16_ulp8_join(masks, high_of(pair), pair, flipped, k % 4 + 1);
	}
}

/* --- Stepping ---------------------------------------------------------------------------------- */

/* The result of a step, and what decides whether it is ordinary. */
template <int N> struct fast_tile {
	float w[N], m[N];
	float v[N]; /* or their roots, if those are encoded */
	uint32_t narrow[N / 2]; /* pairs of weights, the new ones */
	float least_v, largest_v; /* of the variances of the thread */
	float least_up; /* of deciding_update() */
};

/* A rule with a variance; the extremes are those of the thread. */
template <enum step_rule RULE, bool ROOTS, int N>
static __device__ __forceinline__ void fast_adam(const struct tsr_step_scalars *s, const float *g,
						 struct fast_tile<N> *t)
{
	const float d = s->root_correction2;
	const float inverse = tsr_reciprocal_step(d, tsr_reciprocal_estimate(d));

	t->least_v = t->least_up = INFINITY;
	t->largest_v = 0.0f;
#pragma unroll
	for (int k = 0; k < N; k++) {
		const struct tsr_step_values x = stepped_moments<RULE>(
			s, g[k], { t->w[k], t->m[k], t->v[k], 0 });
		const float root = tsr_root_ordinary(x.variance);

		t->m[k] = x.momentum;
		t->v[k] = ROOTS ? root : x.variance;
		t->w[k] = stepped_weight<RULE>(s, t->w[k], x.momentum, root, inverse);
		t->least_v = fminf(t->least_v, x.variance);
		t->largest_v = tsr_max_or_nan(t->largest_v, x.variance);
		t->least_up = fminf(t->least_up, deciding_update<RULE>(s, x.momentum));
	}
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

/* Returns whether the variances are ordinary, but for the largest one. */
template <class form, int N>
static __device__ __forceinline__ bool fast_run(const struct step_args *a, const float *g,
						struct fast_tile<N> *t)
{
	struct tsr_step_scalars scalars = a->scalars;
	const struct tsr_step_scalars *s = &scalars;

	scalars.from_grad = 0.0f;
	if constexpr (form::states::nstates == 2) {
		constexpr bool ROOTS = form::takes_roots;

		if (a->rule == RULE_ADAMW)
			fast_adam<RULE_ADAMW, ROOTS, N>(s, g, t);
		else if (a->rule == RULE_ADAM)
			fast_adam<RULE_ADAM, ROOTS, N>(s, g, t);
		else if (!form::any_order || a->rule == RULE_FLASH_ADAM)
			fast_adam<RULE_FLASH_ADAM, ROOTS, N>(s, g, t);
		else if (a->rule == RULE_COAT_ADAMW)
			fast_adam<RULE_COAT_ADAMW, ROOTS, N>(s, g, t);
		else
			fast_adam<RULE_BITSANDBYTES_ADAM, ROOTS, N>(s, g, t);
		return t->least_v >= 0x1p-100f && t->least_up >= 0x1p-80f;
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
static __device__ __forceinline__ bool fast_were_normal(const struct fast_words<N> *x)
{
	uint32_t least = x->narrow[0] & 0x7fff7fffu;

#pragma unroll
	for (int k = 1; k < N / 2; k++)
		least = tsr_bf16_pair_min(least, x->narrow[k] & 0x7fff7fffu);
	return (least & 0xffff) >= 0x80 && least >> 16 >= 0x80;
}

/* Round the weights; returns whether all are ordinary. */
template <int N> static __device__ __forceinline__ bool fast_narrow(struct fast_tile<N> *t)
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
static __device__ __forceinline__ void fast_encode_weights(struct tsr_masks masks,
							   const struct fast_tile<N> *t,
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

/* --- All of it --------------------------------------------------------------------------------- */

/* Returns false, with nothing stored, unless all numbers of the warp are ordinary. */
template <bool BF16, class form>
static __device__ __forceinline__ bool fast_step(const struct step_args *a, const float *table,
						 struct tile_place at, bool inside)
{
	const int N = form::tile;
	const struct coded_planes *slot = a->slot;
	typename form::scales scales;
	struct fast_words<N> x;
	struct fast_tile<N> t;
	uint32_t correction[N / 4], m[N / 4], v[N / 4];
	float g[N];
	bool ordinary;

	fast_load<BF16, form::states::nstates, N>(a, at, &x);
	form::load_scales(a, at, &x);
	fast_gradients<N>(fast_grad_dtype<BF16>(a), &x, g);
	fast_weights<N>(a->masks, &x, t.w);
	ordinary = fast_were_normal<N>(&x);
	ordinary &= form::decode(a, table, &x, t.m, t.v);
	ordinary &= fast_run<form, N>(a, g, &t);
	ordinary &= fast_narrow<N>(&t);
	ordinary &= form::measure(a, &t, &scales);
	/* A gradient that is not finite makes a momentum that is not. */
	if (!__all_sync(TSR_WHOLE_WARP, ordinary || !inside))
		return false;
	fast_encode_weights<N>(a->masks, &t, correction);
	form::encode(a, table, at, inside, &t, &scales, m, v);
	if (!inside)
		return true;
	store_words<N / 2>(slot[TSR_SLOT_WEIGHT].plane[0], at, t.narrow);
	store_words<N / 4>(slot[TSR_SLOT_WEIGHT].plane[1], at, correction);
	store_words<N / 4>(slot[TSR_SLOT_MOMENTUM].plane[0], at, m);
	if (form::states::nstates == 2)
		store_words<N / 4>(slot[TSR_SLOT_VARIANCE].plane[0], at, v);
	return true;
}

#endif
