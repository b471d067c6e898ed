/* SPDX-License-Identifier: Apache-2.0 */
/* FlashOptim's state (momentum softsign8, variance sqrt8), and one with linear codes: see step_fast.cuh. */
#ifndef TSR_GPU_STEP_FAST_FLASH_CUH
#define TSR_GPU_STEP_FAST_FLASH_CUH

#include "gpu/step/step_fast.cuh"

/*
 * Scales are e8m8.  Besides what step_fast.cuh asks for, the largest new momentum of each group is from
 * 2^-60 to 2^60, and the largest new variance at least 2^-80, or 2^-60 where codes are linear, so that
 * their unit is 1.
 */
template <class group_m, class group_v, class all_states> struct fast_flash {
	typedef all_states states;
	static const int tile = 16, team = states::group / tile;
	static const bool any_order = false, takes_roots = group_v::takes_roots;
	/* Few threads, so that the next block can begin soon; 7 of these leave 72 registers. */
	static const unsigned block = 128, blocks = 7, table_nbytes = 0;

	struct scales {
		float m, v; /* the largest of a group */
	};

	static void prepare(struct step_args *a)
	{
		a->fast &= a->rule <= RULE_FLASH_ADAM &&
			   a->slot[TSR_SLOT_MOMENTUM].scale == TSR_SCALE_E8M8 &&
			   a->slot[TSR_SLOT_VARIANCE].scale == TSR_SCALE_E8M8;
	}

	static __device__ __forceinline__ void fill(const struct step_args *, float *)
	{
	}

	static __device__ __forceinline__ void load_scales(const struct step_args *a,
							   struct tile_place at,
							   struct fast_words<tile> *x)
	{
		for (unsigned p = TSR_SLOT_MOMENTUM; p <= states::nstates; p++)
			x->scale[p] = load_entry<uint16_t, team>(a->slot[p].plane[1], at);
	}

	static __device__ __forceinline__ bool decode(const struct step_args *a, const float *,
						      const struct fast_words<tile> *x, float *m,
						      float *v)
	{
		const float m_scale = tsr_f32_from_e8m8(x->scale[TSR_SLOT_MOMENTUM]);

#pragma unroll
		for (int k = 0; k < tile; k++) {
			const uint32_t flipped = tsr_flip_signed_codes(x->momentum[k / 4]);

			m[k] = group_m::value(tsr_signed_code(a->masks, flipped, k % 4), m_scale);
		}
		if constexpr (states::nstates == 2) {
			const float v_scale = tsr_f32_from_e8m8(x->scale[TSR_SLOT_VARIANCE]);

#pragma unroll
			for (int k = 0; k < tile; k++)
				v[k] = group_v::value(
					tsr_unsigned_code(a->masks, x->variance[k / 4], k % 4),
					v_scale);
		}
		return true;
	}

	static __device__ __forceinline__ bool measure(const struct step_args *,
						       const struct fast_tile<tile> *t,
						       struct scales *s)
	{
		float largest = 0.0f;
		bool ordinary = true;

#pragma unroll
		for (int k = 0; k < tile; k++)
			largest = tsr_max_or_nan(largest, fabsf(t->m[k]));
		s->m = team_max<team>(largest);
		if constexpr (states::nstates == 2) {
			s->v = team_max<team>(t->largest_v);
			ordinary = is_between(s->v, group_v::flash_least(), 0x1p60f);
		}
		return ordinary & is_between(s->m, 0x1p-60f, 0x1p60f);
	}

	/* Store the scale of a group, and return what elements are divided by. */
	static __device__ __forceinline__ float put(const struct coded_planes &p,
						    struct tile_place at, bool inside, float scale,
						    uint32_t most)
	{
		const uint32_t code = ::min(tsr_e8m8_from_f32(scale), most);

		store_entry<uint16_t, team>(p.plane[1], at, inside, (uint16_t)code);
		return tsr_f32_from_e8m8(code);
	}

	template <class group>
	static __device__ __forceinline__ void put_codes(struct tsr_masks masks, const float *x,
							 float scale, uint32_t *code)
	{
		const float factor = group::flash_factor(scale);

#pragma unroll
		for (int k = 0; k < tile; k += 4) {
			uint32_t byte[4];

#pragma unroll
			for (int i = 0; i < 4; i++)
				byte[i] = group::flash_code(masks, x[k + i], factor);
			code[k / 4] = tsr_word_of_bytes(byte);
		}
	}

	static __device__ __forceinline__ void encode(const struct step_args *a, const float *,
						      struct tile_place at, bool inside,
						      const struct fast_tile<tile> *t,
						      const struct scales *s, uint32_t *m,
						      uint32_t *v)
	{
		float scale = put(a->slot[TSR_SLOT_MOMENTUM], at, inside, s->m,
				  group_m::e8m8_max());

		put_codes<group_m>(a->masks, t->m, scale, m);
		if constexpr (states::nstates == 2) {
			const float peak = takes_roots ? tsr_root_ordinary(s->v) : s->v;

			scale = put(a->slot[TSR_SLOT_VARIANCE], at, inside, peak,
				    group_v::e8m8_max());
			put_codes<group_v>(a->masks, t->v, scale, v);
		}
	}
};

#endif
