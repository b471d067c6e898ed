/* SPDX-License-Identifier: Apache-2.0 */
/* FlashOptim's state, momentum softsign8 and variance sqrt8: see step_fast.cuh. */
#ifndef TSR_GPU_STEP_FAST_FLASH_CUH
#define TSR_GPU_STEP_FAST_FLASH_CUH

#include "gpu/step/step_fast.cuh"

/*
 * Both, or the momentum alone.  Scales are e8m8.  Besides what step_fast.cuh asks for, the
 * largest new momentum of each group is from 2^-60 to 2^60, and the largest new variance at least 2^-80, so
 * that their unit is 1.
 */
template <class all_states> struct fast_flash {
	typedef all_states states;
	static const int tile = 16, team = states::group / tile;
	static const bool any_order = false, takes_roots = true;
	/* Few threads, so that the next block can begin soon; 7 of these leave 72 registers. */
	static const unsigned block = 128, blocks = 7, table_nbytes = 0;

	struct scales {
		float m, v; /* the largest of a group */
	};

	static void prepare(struct step_args *a)
	{
		a->fast &= a->rule <= RULE_FLASH_ADAM &&
			   a->part[TSR_PART_MOMENTUM].scale == TSR_SCALE_E8M8 &&
			   a->part[TSR_PART_VARIANCE].scale == TSR_SCALE_E8M8;
	}

	static __device__ __forceinline__ void fill(const struct step_args *, float *)
	{
	}

	static __device__ __forceinline__ void load_scales(const struct step_args *a,
							   struct tile_place at,
							   struct fast_words<tile> *x)
	{
		for (unsigned p = TSR_PART_MOMENTUM; p <= states::nstates; p++)
			x->scale[p] = load_entry<uint16_t, team>(a->part[p].plane[1], at);
	}

	static __device__ __forceinline__ bool decode(const struct step_args *a, const float *,
						      const struct fast_words<tile> *x, float *m,
						      float *v)
	{
		const float m_scale = tsr_f32_from_e8m8(x->scale[TSR_PART_MOMENTUM]);

#pragma unroll
		for (int k = 0; k < tile; k++) {
			const uint32_t flipped = tsr_flip_signed_codes(x->momentum[k / 4]);

			m[k] = group_softsign::value(tsr_signed_code(a->masks, flipped, k % 4),
						     m_scale);
		}
		if constexpr (states::nstates == 2) {
			const float v_scale = tsr_f32_from_e8m8(x->scale[TSR_PART_VARIANCE]);

#pragma unroll
			for (int k = 0; k < tile; k++)
				v[k] = group_sqrt::value(
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
			ordinary = is_between(s->v, 0x1p-80f, 0x1p60f);
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

	/* The lowest 8 bits of a number are its code; roots below half of one count as that: no code is 0. */
	static __device__ __forceinline__ void encode(const struct step_args *a, const float *,
						      struct tile_place at, bool inside,
						      const struct fast_tile<tile> *t,
						      const struct scales *s, uint32_t *m,
						      uint32_t *v)
	{
		const float scale = put(a->part[TSR_PART_MOMENTUM], at, inside, s->m,
					group_softsign::e8m8_max());
		uint32_t byte[4];

#pragma unroll
		for (int k = 0; k < tile; k += 4) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				byte[i] = (uint32_t)tsr_softsign_code_ordinary(t->m[k + i], scale,
									       a->masks.sign);
			m[k / 4] = tsr_word_of_bytes(byte);
		}
		if constexpr (states::nstates == 2) {
			const float factor = tsr_quotient_ordinary(
				255.0f, put(a->part[TSR_PART_VARIANCE], at, inside,
					    tsr_root_ordinary(s->v), group_sqrt::e8m8_max()));

#pragma unroll
			for (int k = 0; k < tile; k += 4) {
#pragma unroll
				for (int i = 0; i < 4; i++)
					byte[i] = (uint32_t)(int32_t)(fmaxf(t->v[k + i] * factor,
									    0.5f) +
								      0.5f);
				v[k / 4] = tsr_word_of_bytes(byte);
			}
		}
	}
};

#endif
