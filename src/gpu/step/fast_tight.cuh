/* SPDX-License-Identifier: Apache-2.0 */
/* tight: momentum ratio8 and variance log8.  See step_fast.cuh, and fast_coded.cuh about codes. */
#ifndef TSR_GPU_STEP_FAST_TIGHT_CUH
#define TSR_GPU_STEP_FAST_TIGHT_CUH

#include "gpu/step/fast_coded.cuh"

/* Exact codes of a few elements. */
static __device__ __noinline__ uint32_t exact_ratio_code(float m, float root, float divisor,
							 float eps)
{
	const float ratio = tsr_ratio_of(m, tsr_ratio_divisor(root, eps));

	return (uint32_t)tsr_softsign_code(ratio, divisor);
}

static __device__ __noinline__ uint32_t exact_root_code(const struct step_args *a, float root,
							uint32_t stored)
{
	return log_code_of(a->slot[TSR_SLOT_VARIANCE].tables, stored, root);
}

/*
 * Besides what step_fast.cuh asks for:
 *
 * - the old scale of roots is 0 or from 2^-38 to 2^62, so that the root of a decoded variance, of at
 *   least 2^-124, is what was squared;
 * - new roots are from 2^-50 to 2^30, a range reaches all of a group, so that no code is below 1, and
 *   the largest ratio of a group is from 2^-60 to 2^60;
 * - the scale of ratios is e8m8, and an estimate tells what it is.
 */
struct fast_tight {
	typedef step_states<group_tiles<grouped<group_softsign, int8_t>, 64>,
			    group_tiles<logarithmic>, true>
		states;
	static const int tile = FAST_TILE, team = states::group / tile;
	static const bool any_order = true, takes_roots = true;
	/* What codes of roots stand for, and then those of ratios. */
	static const uint32_t nroots = TSR_LOG_RANGES * TSR_TABLE_CODES;
	static const unsigned block = 1024, blocks = 1,
			      table_nbytes = (nroots + TSR_TABLE_CODES) * sizeof(float);

	/* What a team knows of its new group. */
	struct scales {
		float ratio; /* the divisor of ratios */
		uint32_t stored; /* f28 and range */
	};

	/* A range reaches down to a power of two: 254 codes further. */
	static void prepare(struct step_args *a)
	{
		const float *reach = tsr_tables_get(TSR_TABLES_LOG)->bound;

		a->fast &= a->slot[TSR_SLOT_MOMENTUM].scale == TSR_SCALE_E8M8 && a->eps >= 0.0f &&
			   a->eps <= 0x1p20f;
		a->numbers.reach = reach[TSR_LOG_RANGES - 1];
		for (unsigned i = 0; i < TSR_LOG_RANGES; i++)
			a->numbers.slope[i] = (float)(-254.0 / log2((double)reach[i]));
	}

	static __device__ __forceinline__ void fill(const struct step_args *a, float *table)
	{
		copy_rows(table, a->slot[TSR_SLOT_VARIANCE].tables.row, TSR_LOG_RANGES,
			  TSR_TABLE_CODES);
		for (uint32_t i = threadIdx.x; i < TSR_TABLE_CODES; i += blockDim.x)
			table[nroots + i] = tsr_softsign_value((float)(int8_t)i, 1.0f);
	}

	static __device__ __forceinline__ void load_scales(const struct step_args *a,
							   struct tile_place at,
							   struct fast_words<tile> *x)
	{
		const struct coded_planes *slot = a->slot;

		x->scale[TSR_SLOT_MOMENTUM] = load_entry<uint16_t, team>(
			slot[TSR_SLOT_MOMENTUM].plane[1], at);
		x->scale[TSR_SLOT_VARIANCE] = load_entry<uint32_t, team>(
			slot[TSR_SLOT_VARIANCE].plane[1], at);
	}

	static __device__ __forceinline__ bool decode(const struct step_args *a, const float *table,
						      const struct fast_words<tile> *x, float *m,
						      float *v)
	{
		const float ratio_scale = tsr_f32_from_e8m8(x->scale[TSR_SLOT_MOMENTUM]);
		const uint32_t stored = x->scale[TSR_SLOT_VARIANCE];
		const float scale = tsr_f28_scale(stored);

#pragma unroll
		for (int k = 0; k < tile; k++)
			v[k] = look_up(table, tsr_f28_range(stored) << 10, x->variance[k / 4],
				       k % 4, 0xff);
#pragma unroll
		for (int k = 0; k < tile; k++)
			m[k] = ratio_scale *
			       look_up(table + nroots, 0, x->momentum[k / 4], k % 4, 0xff);
#pragma unroll
		for (int k = 0; k < tile; k++) {
			const float root = v[k] * scale;

			v[k] = root * root;
			m[k] = m[k] * tsr_ratio_divisor(root, a->eps);
		}
		return scale == 0.0f || is_between(scale, 0x1p-38f, 0x1p62f);
	}

	/* The scales of what is in @t; returns whether the group is ordinary. */
	static __device__ __forceinline__ bool measure(const struct step_args *a,
						       const struct fast_tile<tile> *t,
						       struct scales *s)
	{
		float ratio = 0.0f, least, largest;
		uint32_t above, below;

#pragma unroll
		for (int k = 0; k < tile; k++) {
			const float divisor = tsr_ratio_divisor(t->v[k], a->eps);

			ratio = tsr_max_or_nan(ratio,
					       fabsf(t->m[k] * tsr_reciprocal_estimate(divisor)));
		}
		ratio = team_max<team>(ratio);
		least = tsr_root_ordinary(least_of_team<team>(t->least_v));
		largest = tsr_root_ordinary(team_max<team>(t->largest_v));
		/* The estimate is within 5 ULP of the largest quotient. */
		below = tsr_e8m8_from_f32(tsr_f32_from_bits(tsr_bits_from_f32(ratio) - 8));
		above = tsr_e8m8_from_f32(tsr_f32_from_bits(tsr_bits_from_f32(ratio) + 8));
		s->ratio = tsr_f32_from_e8m8(above);
		s->stored = tsr_f28_from_root(largest);
		s->stored |= range_of(a, tsr_f28_scale(s->stored), least);
		return above == below && is_between(ratio, 0x1p-60f, 0x1p60f) &&
		       least >= 0x1p-50f && largest < 0x1p30f &&
		       tsr_f28_scale(s->stored) * a->numbers.reach <= least;
	}

	/* tsr_log_range() of a positive scale, each thread of the team with a part of the ranges. */
	static __device__ __forceinline__ uint32_t range_of(const struct step_args *a, float scale,
							    float least)
	{
		const unsigned each = TSR_LOG_RANGES / team, first = threadIdx.x % team * each;
		const float *bound = a->slot[TSR_SLOT_VARIANCE].tables.bound;
		uint32_t range = 0;

#pragma unroll
		for (unsigned i = 0; i < each; i++) {
			const bool reaches = scale * bound[first + i] <= least;

			range += !reaches && first + i + 1 < TSR_LOG_RANGES;
		}
#pragma unroll
		for (unsigned distance = 1; distance < team; distance *= 2)
			range += __shfl_xor_sync(TSR_WHOLE_WARP, range, distance);
		return range;
	}

	/*
	 * Ratios: (254 m / d) / (s + |m / d|) = 254 m / (s d + |m|), of which the estimate is within
	 * 2^-21 of it, relatively, and what the formula makes of it, too.
	 * Roots: the code is the integer in 255.5 + slope log2(root / s), for a slope of codes per
	 * octave.  log2 is within 2^-22 of its value, or of 1, and all other errors are 2^-21 of the
	 * quotient: that is 2^-14 + slope 2^-20.5 of a code, of which the places begin at 2^-15.
	 */
	static __device__ __forceinline__ void encode(const struct step_args *a, const float *,
						      struct tile_place at, bool inside,
						      const struct fast_tile<tile> *t,
						      const struct scales *s, uint32_t *m,
						      uint32_t *v)
	{
		const float scale = tsr_f28_scale(s->stored), eps = a->eps;
		const float slope = a->numbers.slope[tsr_f28_range(s->stored)];
		const float inverse = tsr_reciprocal_estimate(scale);
		const uint32_t error = 8 + (uint32_t)slope / 16; /* twice: the sum is doubled */
		uint32_t m_other[tile / 4], v_other[tile / 4], differ = 0;

		store_entry<uint16_t, team>(a->slot[TSR_SLOT_MOMENTUM].plane[1], at, inside,
					    (uint16_t)tsr_e8m8_from_f32(s->ratio));
		store_entry<uint32_t, team>(a->slot[TSR_SLOT_VARIANCE].plane[1], at, inside,
					    s->stored);
#pragma unroll
		for (int k = 0; k < tile; k += 4) {
			uint32_t m_low[4], m_high[4], v_low[4], v_high[4];

#pragma unroll
			for (int i = 0; i < 4; i++) {
				const float x = t->m[k + i], root = t->v[k + i];
				const float divisor = tsr_fma(
					s->ratio, tsr_ratio_divisor(root, eps), fabsf(x));
				const float h = x * tsr_reciprocal_estimate(divisor);
				const float octaves = tsr_log2_estimate(root * inverse);
				const float code = tsr_fma(octaves, slope, 511.5f);
				const uint32_t twice = tsr_bits_from_f32(code) << 1;

				m_low[i] = tsr_bits_from_f32(
					tsr_fma(h, 254.0f * (1.0f - 0x1p-20f), 0x1.8p23f));
				m_high[i] = tsr_bits_from_f32(
					tsr_fma(h, 254.0f * (1.0f + 0x1p-20f), 0x1.8p23f));
				v_low[i] = twice - error;
				v_high[i] = twice + error;
			}
			m[k / 4] = tsr_word_of_bytes(m_low);
			m_other[k / 4] = tsr_word_of_bytes(m_high);
			v[k / 4] = tsr_word_of_bytes<2>(v_low);
			v_other[k / 4] = tsr_word_of_bytes<2>(v_high);
			differ |= (m[k / 4] ^ m_other[k / 4]) | (v[k / 4] ^ v_other[k / 4]);
		}
		if (!differ)
			return;
#pragma unroll
		for (int k = 0; k < tile; k += 4) {
			m[k / 4] = settle(m[k / 4], m_other[k / 4], [=](unsigned i) {
				return exact_ratio_code(pick(&t->m[k], i), pick(&t->v[k], i),
							s->ratio, eps);
			});
			v[k / 4] = settle(v[k / 4], v_other[k / 4], [=](unsigned i) {
				return exact_root_code(a, pick(&t->v[k], i), s->stored);
			});
		}
	}
};

#endif
