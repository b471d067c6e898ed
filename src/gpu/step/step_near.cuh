/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps with weights bf16+ulp8 and states whose codes are found by approximate arithmetic, where all
 * numbers are ordinary as in step_flash.cuh.
 *
 * A code is how many thresholds a number has passed.  An approximation of it with a bound on its error
 * is made twice, once a little too small and once too large: where both give the same code, it is the
 * right one, and where not, which is rare, the formula of the CPU is computed.  So bits do not depend
 * on what an estimate is, as long as it keeps its bound.  Weights and moments are computed exactly.
 *
 * A thread has N elements, and a team of GROUP / N threads has a group.
 */
#ifndef TSR_GPU_STEP_NEAR_CUH
#define TSR_GPU_STEP_NEAR_CUH

#include "gpu/step/step_flash.cuh"
#include "gpu/step/step_pairs.cuh"

/* --- Memory ------------------------------------------------------------------------------------ */

/* Entry of a tile's group. */
template <class entry, int TEAM>
static __device__ __forceinline__ entry load_entry(const void *plane, uint32_t tile)
{
	return ((const entry *)plane)[tile / TEAM];
}

template <class entry, int TEAM>
static __device__ __forceinline__ void store_entry(void *plane, uint32_t tile, bool inside, entry x)
{
	if (inside && threadIdx.x % TEAM == 0)
		((entry *)plane)[tile / TEAM] = x;
}

/* All but the scales. */
template <bool USUAL, int N>
static __device__ __forceinline__ void near_load(const struct step_args *a, uint32_t tile,
						 struct flash_words<N> *x)
{
	const struct step_part *part = a->part;

	if (flash_grad_dtype<USUAL>(a) == TSR_F32)
		load_tile<uint32_t, N>(a->grad, tile, x->grad);
	else
		load_tile<uint32_t, N / 2>(a->grad, tile, x->grad);
	load_tile<uint32_t, N / 2>(part[TSR_PART_WEIGHT].plane[0], tile, x->narrow);
	load_tile<uint32_t, N / 4>(part[TSR_PART_WEIGHT].plane[1], tile, x->correction);
	load_tile<uint32_t, N / 4>(part[TSR_PART_MOMENTUM].plane[0], tile, x->momentum);
	load_tile<uint32_t, N / 4>(part[TSR_PART_VARIANCE].plane[0], tile, x->variance);
}

/*
 * Tables of what codes stand for are in shared memory, where threads that look up different entries
 * wait for each other a few times, and not once for each line of a cache.
 */

/* Entry of byte @i of a word, of which the bits of @mask count, in the table that begins at @offset. */
static __device__ __forceinline__ float look_up(const float *table, uint32_t offset, uint32_t word,
						unsigned i, uint32_t mask)
{
	const uint32_t shifted = i ? word >> (8 * i - 2) : word << 2;

	return *(const float *)((const char *)table + ((shifted & mask << 2) | offset));
}

/* Have @nrows rows of @width floats, of rows of @stride, in a table; all threads of the block. */
static __device__ __forceinline__ void copy_rows(float *to, const float *from, uint32_t nrows,
						 uint32_t width, uint32_t stride)
{
	for (uint32_t i = threadIdx.x; i < nrows * width / 4; i += blockDim.x)
		((float4 *)to)[i] = *(
			const float4 *)&from[i / (width / 4) * stride + i % (width / 4) * 4];
}

/* --- What teams find --------------------------------------------------------------------------- */

template <int TEAM> static __device__ __forceinline__ float largest_of_team(float x)
{
#pragma unroll
	for (unsigned distance = 1; distance < TEAM; distance *= 2)
		x = tsr_max_or_nan(x, __shfl_xor_sync(TSR_WHOLE_WARP, x, distance));
	return x;
}

template <int TEAM> static __device__ __forceinline__ float least_of_team(float x)
{
#pragma unroll
	for (unsigned distance = 1; distance < TEAM; distance *= 2)
		x = fminf(x, __shfl_xor_sync(TSR_WHOLE_WARP, x, distance));
	return x;
}

/* --- What estimates do not decide -------------------------------------------------------------- */

static __device__ __forceinline__ float pick(const float *x, unsigned i)
{
	const float low = i & 1 ? x[1] : x[0], high = i & 1 ? x[3] : x[2];

	return i & 2 ? high : low;
}

/* A word of codes, of which bytes that differ in @other become what @code_of them gives: few, if any. */
template <class code>
static __device__ __forceinline__ uint32_t settle(uint32_t word, uint32_t other,
						  const code &code_of)
{
	uint32_t differ = word ^ other;

	while (differ) {
		const unsigned i = (unsigned)(__ffs((int)differ) - 1) / 8;
		const uint32_t mask = 0xffu << 8 * i;

		word = (word & ~mask) | (code_of(i) & 0xff) << 8 * i;
		differ &= ~mask;
	}
	return word;
}

/* --- All of it --------------------------------------------------------------------------------- */

template <bool ROOTS, int N>
static __device__ __forceinline__ bool near_run(const struct step_args *a, const float *g,
						struct flash_tile<N> *t)
{
	struct tsr_step_scalars scalars = a->scalars;
	const struct tsr_step_scalars *s = &scalars;

	scalars.from_grad = 0.0f;
	switch (a->rule) {
	case RULE_ADAMW:
		flash_adam_tile<adamw, ROOTS, N>(s, g, t);
		break;
	case RULE_ADAM:
		flash_adam_tile<adam, ROOTS, N>(s, g, t);
		break;
	case RULE_FLASH_ADAM:
		flash_adam_tile<flash_adam, ROOTS, N>(s, g, t);
		break;
	case RULE_COAT_ADAMW:
		flash_adam_tile<coat_adamw, ROOTS, N>(s, g, t);
		break;
	default:
		flash_adam_tile<bitsandbytes_adam, ROOTS, N>(s, g, t);
	}
	return t->least_v >= 0x1p-100f && t->largest_v < 0x1p60f && t->least_up >= 0x1p-80f;
}

/* Returns false, with nothing stored, unless all numbers of the warp are ordinary. */
template <bool USUAL, class pair, int N>
static __device__ __forceinline__ bool near_step(const struct pair_args *p, const float *table,
						 uint32_t tile, bool inside)
{
	const struct step_args *a = &p->step;
	typename pair::scales scales;
	struct flash_words<N> x;
	struct flash_tile<N> t;
	uint32_t correction[N / 4], m[N / 4], v[N / 4];
	float g[N];
	bool ordinary;

	/* What others read is not used: the first tile of the warp is there. */
	tile -= inside ? 0 : threadIdx.x % 32;
	near_load<USUAL, N>(a, tile, &x);
	flash_gradients<N>(flash_grad_dtype<USUAL>(a), &x, g);
	flash_weights<N>(a->masks, &x, t.w);
	ordinary = flash_were_normal<N>(&x);
	ordinary &= pair::template decode<N>(p, table, tile, &x, t.m, t.v);
	ordinary &= near_run<pair::takes_roots, N>(a, g, &t);
	ordinary &= flash_narrow<N>(&t);
	ordinary &= pair::template measure<N>(p, &t, &scales);
	if (!__all_sync(TSR_WHOLE_WARP, ordinary || !inside))
		return false;
	flash_encode_weights<N>(a->masks, &t, correction);
	pair::template encode<N>(p, &t, table, &scales, m, v);
	pair::template store_scales<N>(a, tile, inside, &scales);
	if (!inside)
		return true;
	store_tile<uint32_t, N / 2>(a->part[TSR_PART_WEIGHT].plane[0], tile, t.narrow);
	store_tile<uint32_t, N / 4>(a->part[TSR_PART_WEIGHT].plane[1], tile, correction);
	store_tile<uint32_t, N / 4>(a->part[TSR_PART_MOMENTUM].plane[0], tile, m);
	store_tile<uint32_t, N / 4>(a->part[TSR_PART_VARIANCE].plane[0], tile, v);
	return true;
}

#endif
