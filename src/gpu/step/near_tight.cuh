/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of tight, ratio8 and log8, for step_near.cuh. */
#ifndef TSR_GPU_STEP_NEAR_TIGHT_CUH
#define TSR_GPU_STEP_NEAR_TIGHT_CUH

#include "gpu/step/step_near.cuh"

/* Exact codes of a few elements. */
static __device__ __noinline__ uint32_t near_ratio_code(float m, float root, float divisor,
							float eps)
{
	return exact_tight::ratio_code(m, root, divisor, eps);
}

static __device__ __noinline__ uint32_t near_root_code(const struct pair_args *p, float root,
						       uint32_t stored)
{
	return exact_tight::root_code(p, root, stored);
}

struct near_ratio {
	const float *m, *root;
	float divisor, eps;

	__device__ __forceinline__ uint32_t operator()(unsigned i) const
	{
		return near_ratio_code(pick(m, i), pick(root, i), divisor, eps);
	}
};

struct near_root {
	const struct pair_args *p;
	const float *root;
	uint32_t stored;

	__device__ __forceinline__ uint32_t operator()(unsigned i) const
	{
		return near_root_code(p, pick(root, i), stored);
	}
};

/*
 * Besides what flash asks for:
 *
 * - the old scale of roots is 0 or from 2^-38 to 2^62, so that the root of a decoded variance, of at
 *   least 2^-124, is what was squared;
 * - new roots are from 2^-50 to 2^30, a range reaches all of a group, so that no code is below 1, and
 *   the largest ratio of a group is from 2^-60 to 2^60;
 * - the scale of ratios is e8m8, and an estimate tells what it is.
 */
struct near_tight {
	static const int group = 64;
	static const unsigned block = 1024;
	static const bool takes_roots = true;
	/* What codes of roots stand for, and then those of ratios. */
	static const uint32_t nroots = TSR_LOG_RANGES * TSR_TABLE_CODES;
	static const uint32_t table_nbytes = (nroots + TSR_TABLE_CODES) * sizeof(float);
	typedef exact_tight exact;

	static __device__ __forceinline__ void fill(const struct pair_args *p, float *table)
	{
		copy_rows(table, p->variance.value, TSR_LOG_RANGES, TSR_TABLE_CODES,
			  TSR_TABLE_CODES);
		for (uint32_t i = threadIdx.x; i < TSR_TABLE_CODES; i += blockDim.x)
			table[nroots + i] = tsr_softsign_value((float)(int8_t)i, 1.0f);
	}

	/* What a team knows of its new group. */
	struct scales {
		float ratio; /* the divisor of ratios */
		uint32_t stored; /* f28 and range */
	};

	static __host__ bool scalars_fit(const struct pair_args *p)
	{
		return p->step.part[TSR_PART_MOMENTUM].scale == TSR_SCALE_E8M8 && p->eps >= 0.0f &&
		       p->eps <= 0x1p20f;
	}

	template <int N>
	static __device__ __forceinline__ bool decode(const struct pair_args *p, const float *table,
						      uint32_t tile, const struct flash_words<N> *x,
						      float *m, float *v)
	{
		const struct step_part *part = p->step.part;
		const int team = group / N;
		const float ratio_scale = tsr_f32_from_e8m8(
			load_entry<uint16_t, team>(part[TSR_PART_MOMENTUM].plane[1], tile));
		const uint32_t stored = load_entry<uint32_t, team>(part[TSR_PART_VARIANCE].plane[1],
								   tile);
		const float scale = tsr_f28_scale(stored);

#pragma unroll
		for (int k = 0; k < N; k++)
			v[k] = look_up(table, tsr_f28_range(stored) << 10, x->variance[k / 4],
				       k % 4, 0xff);
#pragma unroll
		for (int k = 0; k < N; k++)
			m[k] = ratio_scale *
			       look_up(table + nroots, 0, x->momentum[k / 4], k % 4, 0xff);
#pragma unroll
		for (int k = 0; k < N; k++) {
			const float root = v[k] * scale;

			v[k] = root * root;
			m[k] = m[k] * tsr_ratio_divisor(root, p->eps);
		}
		return scale == 0.0f || is_between(scale, 0x1p-38f, 0x1p62f);
	}

	/* The scales of what is in @t; returns whether the group is ordinary. */
	template <int N>
	static __device__ __forceinline__ bool measure(const struct pair_args *p,
						       const struct flash_tile<N> *t,
						       struct scales *s)
	{
		const int team = group / N;
		float ratio = 0.0f, least, largest;
		uint32_t above, below;

#pragma unroll
		for (int k = 0; k < N; k++) {
			const float divisor = tsr_ratio_divisor(t->v[k], p->eps);

			ratio = tsr_max_or_nan(ratio,
					       fabsf(t->m[k] * tsr_reciprocal_estimate(divisor)));
		}
		ratio = largest_of_team<team>(ratio);
		least = tsr_root_ordinary(least_of_team<team>(t->least_v));
		largest = tsr_root_ordinary(largest_of_team<team>(t->largest_v));
		/* The estimate is within 5 ULP of the largest quotient. */
		below = tsr_e8m8_from_f32(tsr_f32_from_bits(tsr_bits_from_f32(ratio) - 8));
		above = tsr_e8m8_from_f32(tsr_f32_from_bits(tsr_bits_from_f32(ratio) + 8));
		s->ratio = tsr_f32_from_e8m8(above);
		s->stored = tsr_f28_from_root(largest);
		s->stored |= range_of<team>(p, tsr_f28_scale(s->stored), least);
		return above == below && is_between(ratio, 0x1p-60f, 0x1p60f) &&
		       least >= 0x1p-50f && largest < 0x1p30f &&
		       tsr_f28_scale(s->stored) * p->reach <= least;
	}

	/* tsr_log_range() of a positive scale, each thread of the team with a part of the ranges. */
	template <int TEAM>
	static __device__ __forceinline__ uint32_t range_of(const struct pair_args *p, float scale,
							    float least)
	{
		const unsigned each = TSR_LOG_RANGES / TEAM, first = threadIdx.x % TEAM * each;
		uint32_t range = 0;

#pragma unroll
		for (unsigned i = 0; i < each; i++) {
			const bool reaches = scale * p->variance.bound[first + i] <= least;

			range += !reaches && first + i + 1 < TSR_LOG_RANGES;
		}
#pragma unroll
		for (unsigned distance = 1; distance < TEAM; distance *= 2)
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
	template <int N>
	static __device__ __forceinline__ void encode(const struct pair_args *p,
						      const struct flash_tile<N> *t,
						      const float *table, const struct scales *s,
						      uint32_t *m, uint32_t *v)
	{
		const float scale = tsr_f28_scale(s->stored), eps = p->eps;
		const float slope = p->slope[tsr_f28_range(s->stored)];
		const float inverse = tsr_reciprocal_estimate(scale);
		const uint32_t error = 8 + (uint32_t)slope / 16; /* twice: the sum is doubled */
		uint32_t m_other[N / 4], v_other[N / 4], differ = 0;

		(void)table;
#pragma unroll
		for (int k = 0; k < N; k += 4) {
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
			v[k / 4] = tsr_word_of_third_bytes(v_low);
			v_other[k / 4] = tsr_word_of_third_bytes(v_high);
			differ |= (m[k / 4] ^ m_other[k / 4]) | (v[k / 4] ^ v_other[k / 4]);
		}
		if (!differ)
			return;
#pragma unroll
		for (int k = 0; k < N; k += 4) {
			m[k / 4] = settle(m[k / 4], m_other[k / 4],
					  near_ratio{ &t->m[k], &t->v[k], s->ratio, eps });
			v[k / 4] = settle(v[k / 4], v_other[k / 4],
					  near_root{ p, &t->v[k], s->stored });
		}
	}

	template <int N>
	static __device__ __forceinline__ void store_scales(const struct step_args *a,
							    uint32_t tile, bool inside,
							    const struct scales *s)
	{
		const int team = group / N;

		store_entry<uint16_t, team>(a->part[TSR_PART_MOMENTUM].plane[1], tile, inside,
					    (uint16_t)tsr_e8m8_from_f32(s->ratio));
		store_entry<uint32_t, team>(a->part[TSR_PART_VARIANCE].plane[1], tile, inside,
					    s->stored);
	}
};

#endif
