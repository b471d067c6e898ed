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

template <class entry, int TEAM>
static __device__ __forceinline__ entry block_entry(const void *plane, unsigned thread)
{
	const uint64_t first = (uint64_t)blockIdx.x * (FLASH_BLOCK / TEAM);

	return ((const entry *)plane)[first + thread / TEAM];
}

template <class entry, int TEAM>
static __device__ __forceinline__ void put_block_entry(void *plane, bool inside, entry x)
{
	const uint64_t first = (uint64_t)blockIdx.x * (FLASH_BLOCK / TEAM);

	if (inside && threadIdx.x % TEAM == 0)
		((entry *)plane)[first + threadIdx.x / TEAM] = x;
}

/* All but the scales. */
template <bool USUAL, int N>
static __device__ __forceinline__ void near_load(const struct step_args *a, unsigned thread,
						 struct flash_words<N> *x)
{
	const struct step_part *part = a->part;

	if (flash_grad_dtype<USUAL>(a) == TSR_F32)
		load_words<N>(a->grad, thread, x->grad);
	else
		load_words<N / 2>(a->grad, thread, x->grad);
	load_words<N / 2>(part[TSR_PART_WEIGHT].plane[0], thread, x->narrow);
	load_words<N / 4>(part[TSR_PART_WEIGHT].plane[1], thread, x->correction);
	load_words<N / 4>(part[TSR_PART_MOMENTUM].plane[0], thread, x->momentum);
	load_words<N / 4>(part[TSR_PART_VARIANCE].plane[0], thread, x->variance);
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

/* --- tight: ratio8 and log8 -------------------------------------------------------------------- */

/*
 * Besides what flash asks for:
 *
 * - the old scale of roots is 0 or from 2^-38 to 2^62, so that the root of a decoded variance, of at
 *   least 2^-124, is what was squared;
 * - new roots are from 2^-50 to 2^30, and the largest ratio of a group from 2^-60 to 2^60;
 * - the scale of ratios is e8m8, and an estimate tells what it is.
 */
struct near_tight {
	static const int group = 64;
	static const bool takes_roots = true;
	typedef exact_tight exact;

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
	static __device__ __forceinline__ bool decode(const struct pair_args *p, unsigned thread,
						      const struct flash_words<N> *x, float *m,
						      float *v)
	{
		const struct step_part *part = p->step.part;
		const int team = group / N;
		const float ratio_scale = tsr_f32_from_e8m8(
			block_entry<uint16_t, team>(part[TSR_PART_MOMENTUM].plane[1], thread));
		const uint32_t stored = block_entry<uint32_t, team>(
			part[TSR_PART_VARIANCE].plane[1], thread);
		const float *value = p->variance.value + TSR_TABLE_CODES * tsr_f28_range(stored);
		const float scale = tsr_f28_scale(stored);

#pragma unroll
		for (int k = 0; k < N; k++)
			v[k] = value[x->variance[k / 4] >> k % 4 * 8 & 0xff];
		flash_momentum<group_softsign, N>(p->step.masks, x, ratio_scale, m);
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
		float ratio = 0.0f, least = INFINITY, largest = 0.0f;
		uint32_t above, below;

#pragma unroll
		for (int k = 0; k < N; k++) {
			const float divisor = tsr_ratio_divisor(t->v[k], p->eps);

			ratio = tsr_max_or_nan(ratio,
					       fabsf(t->m[k] * tsr_reciprocal_estimate(divisor)));
			least = fminf(least, t->v[k]);
			largest = tsr_max_or_nan(largest, t->v[k]);
		}
		ratio = largest_of_team<team>(ratio);
		least = least_of_team<team>(least);
		largest = largest_of_team<team>(largest);
		/* The estimate is within 5 ULP of the largest quotient. */
		below = tsr_e8m8_from_f32(tsr_f32_from_bits(tsr_bits_from_f32(ratio) - 8));
		above = tsr_e8m8_from_f32(tsr_f32_from_bits(tsr_bits_from_f32(ratio) + 8));
		s->ratio = tsr_f32_from_e8m8(above);
		s->stored = tsr_f28_from_root(largest);
		s->stored |= range_of<team>(p, tsr_f28_scale(s->stored), least);
		return above == below && is_between(ratio, 0x1p-60f, 0x1p60f) &&
		       least >= 0x1p-50f && largest < 0x1p30f;
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
						      const struct scales *s, uint32_t *m,
						      uint32_t *v)
	{
		const float scale = tsr_f28_scale(s->stored), eps = p->eps;
		const float slope = p->slope[tsr_f28_range(s->stored)];
		const float inverse = tsr_reciprocal_estimate(scale);
		const uint32_t error = 8 + (uint32_t)slope / 16; /* twice: the sum is doubled */

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
				const float code = fmaxf(tsr_fma(octaves, slope, 511.5f), 257.5f);
				const uint32_t twice = tsr_bits_from_f32(code) << 1;

				m_low[i] = tsr_bits_from_f32(
					tsr_fma(h, 254.0f * (1.0f - 0x1p-20f), 0x1.8p23f));
				m_high[i] = tsr_bits_from_f32(
					tsr_fma(h, 254.0f * (1.0f + 0x1p-20f), 0x1.8p23f));
				v_low[i] = twice - error;
				v_high[i] = twice + error;
			}
			m[k / 4] = tsr_word_of_bytes(m_low);
			v[k / 4] = tsr_word_of_third_bytes(v_low);
			if (m[k / 4] != tsr_word_of_bytes(m_high) ||
			    v[k / 4] != tsr_word_of_third_bytes(v_high)) {
#pragma unroll
				for (int i = 0; i < 4; i++) {
					m_low[i] = exact::ratio_code(t->m[k + i], t->v[k + i],
								     s->ratio, eps);
					v_low[i] = exact::root_code(p, t->v[k + i], s->stored);
				}
				m[k / 4] = tsr_word_of_bytes(m_low);
				v[k / 4] = tsr_word_of_bytes(v_low);
			}
		}
	}

	template <int N>
	static __device__ __forceinline__ void store_scales(const struct step_args *a, bool inside,
							    const struct scales *s)
	{
		const int team = group / N;

		put_block_entry<uint16_t, team>(a->part[TSR_PART_MOMENTUM].plane[1], inside,
						(uint16_t)tsr_e8m8_from_f32(s->ratio));
		put_block_entry<uint32_t, team>(a->part[TSR_PART_VARIANCE].plane[1], inside,
						s->stored);
	}
};

/* --- Codes that are tables --------------------------------------------------------------------- */

/*
 * What pairs of them share, with the codes of a part from @coder.  Besides what flash asks for: no new
 * momentum is 0, the magnitudes of a group's are from 2^-100 to 2^60, and as many times as the coder
 * takes apart from each other.
 */
template <class coder> struct near_coded {
	typedef typename coder::exact exact;
	static const int group = exact::group;
	static const bool takes_roots = false;

	struct scales {
		typename coder::scale part[TSR_PARTS]; /* not of weights */
	};

	static __host__ bool scalars_fit(const struct pair_args *)
	{
		return true;
	}

	template <int N>
	static __device__ __forceinline__ void decode_part(const struct pair_args *p, unsigned part,
							   unsigned thread, const uint32_t *word,
							   float *x)
	{
		const struct step_part *planes = &p->step.part[part];
		const uint64_t g = (uint64_t)blockIdx.x * (FLASH_BLOCK / (group / N)) +
				   thread / (group / N);
		const float *value = exact::tables_of(p, part).value +
				     TSR_TABLE_CODES * exact::stored_row(p, part, g);
		const float scale = ((const float *)planes->plane[1])[g];

#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] = value[word[k / 4] >> k % 4 * 8 & 0xff];
#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] *= scale;
	}
	template <int N>
	static __device__ __forceinline__ bool decode(const struct pair_args *p, unsigned thread,
						      const struct flash_words<N> *x, float *m,
						      float *v)
	{
		decode_part<N>(p, TSR_PART_MOMENTUM, thread, x->momentum, m);
		decode_part<N>(p, TSR_PART_VARIANCE, thread, x->variance, v);
		return true;
	}

	template <int N>
	static __device__ __forceinline__ bool measure_part(const struct pair_args *p,
							    unsigned part, const float *x,
							    typename coder::scale *s)
	{
		float least = fabsf(x[0]), largest = fabsf(x[0]);
		bool fits;

#pragma unroll
		for (int k = 1; k < N; k++) {
			least = fminf(least, fabsf(x[k]));
			largest = tsr_max_or_nan(largest, fabsf(x[k]));
		}
		least = least_of_team<group / N>(least);
		largest = largest_of_team<group / N>(largest);
		/* Threads without elements encode with what is measured, too. */
		fits = coder::measure(exact::tables_of(p, part), part, largest, least, s);
		return fits && least >= 0x1p-100f && largest < 0x1p60f;
	}
	template <int N>
	static __device__ __forceinline__ bool measure(const struct pair_args *p,
						       const struct flash_tile<N> *t,
						       struct scales *s)
	{
		const unsigned m = TSR_PART_MOMENTUM, v = TSR_PART_VARIANCE;
		const bool ordinary = measure_part<N>(p, m, t->m, &s->part[m]);

		return measure_part<N>(p, v, t->v, &s->part[v]) & ordinary;
	}

	template <int N>
	static __device__ __forceinline__ void encode(const struct pair_args *p,
						      const struct flash_tile<N> *t,
						      const struct scales *s, uint32_t *m,
						      uint32_t *v)
	{
		const unsigned momentum = TSR_PART_MOMENTUM, variance = TSR_PART_VARIANCE;

#pragma unroll
		for (int k = 0; k < N; k += 4) {
			m[k / 4] = coder::template word<momentum>(p, &s->part[momentum], &t->m[k]);
			v[k / 4] = coder::template word<variance>(p, &s->part[variance], &t->v[k]);
		}
	}

	template <int N>
	static __device__ __forceinline__ void store_scales(const struct step_args *a, bool inside,
							    const struct scales *s)
	{
		const int team = group / N;

#pragma unroll
		for (unsigned part = TSR_PART_MOMENTUM; part < TSR_PARTS; part++) {
			put_block_entry<float, team>(a->part[part].plane[1], inside,
						     s->part[part].scale);
			if (exact::rule_of(part).expanded)
				put_block_entry<uint8_t, team>(a->part[part].plane[2], inside,
							       (uint8_t)s->part[part].row);
		}
	}
};

/* The word of four elements by the CPU's formula. */
template <class exact>
static __device__ __forceinline__ uint32_t exact_word(const struct pair_args *p, unsigned part,
						      uint32_t row, float scale, const float *x)
{
	const struct coded_group g = coded_group_of(exact::rule_of(part), exact::tables_of(p, part),
						    row, scale);
	uint32_t byte[4];

#pragma unroll
	for (int i = 0; i < 4; i++)
		byte[i] = encode_one(exact::rule_of(part), &g, x[i]);
	return tsr_word_of_bytes(byte);
}

/*
 * COAT's E4M3 with expansion: the code of t = |x| / s is that of 448 t^(j/16) in E4M3, by its rounding
 * to nearest, for a group with row j of the table.  The power is exp2(j/16 log2 t): log2 is within
 * 2^-22 of its value, which times j/16 is at most 18.8 for codes above 1, or of 1, and t within 2^-21.1;
 * so the power is within 2^-18 + j 2^-24.9, relatively.
 */
struct coat_coder {
	typedef exact_coded<coat_format, 128> exact;

	struct scale {
		float scale, inverse;
		uint32_t row;
		float power; /* j/16 */
		float offset; /* log2(448), less an error */
		float twice; /* 1 and twice the error */
	};

	/*
	 * The last row of which the bound is not below the ratio; the estimate is within a hundredth of
	 * where the bounds put it.
	 */
	static __device__ __forceinline__ uint32_t row_of(const float *bound, float ratio)
	{
		/* The bound of j is (49 2^11)^(16/j). */
		const float octaves = tsr_log2_estimate(ratio);
		const float at = 16.0f * 16.6147098f * tsr_reciprocal_estimate(octaves) + 0.5f;
		const uint32_t row = (uint32_t)fminf(at, 255.0f);

		return bound[row] >= ratio ? row : row - 1;
	}
	static __device__ __forceinline__ bool measure(struct tsr_gpu_tables tables, unsigned,
						       float largest, float least, struct scale *s)
	{
		const float ratio = tsr_quotient_ordinary(largest, least);
		const bool fits = is_between(ratio, 1.0f, 0x1p60f);
		float error;

		s->scale = largest;
		s->inverse = tsr_reciprocal_estimate(largest);
		s->row = row_of(tables.bound, fits ? fmaxf(ratio, 1.125f) : 2.0f);
		s->power = (float)s->row * 0.0625f;
		error = tsr_fma((float)s->row, 0x1p-24f, 0x1p-17f);
		s->offset = 8.80735492f - 1.5f * error;
		s->twice = 1.0f + 2.0f * error;
		return fits;
	}
	template <unsigned PART>
	static __device__ __forceinline__ uint32_t word(const struct pair_args *p,
							const struct scale *s, const float *x)
	{
		float low[4], high[4];
		uint32_t word;

#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float octaves = tsr_log2_estimate(fabsf(x[i]) * s->inverse);
			const float power = tsr_exp2_estimate(
				tsr_fma(octaves, s->power, s->offset));
			const uint32_t magnitude = tsr_bits_from_f32(fmaxf(power, 0x1p-9f));
			const uint32_t sign = tsr_bits_from_f32(x[i]) & TSR_F32_SIGN;

			low[i] = tsr_f32_from_bits(PART == TSR_PART_MOMENTUM ? magnitude | sign
									     : magnitude);
			high[i] = low[i] * s->twice;
		}
		word = tsr_e4m3_word(low);
		if (word != tsr_e4m3_word(high))
			word = exact_word<exact>(p, PART, s->row, s->scale, x);
		return word;
	}
};

/* bitsandbytes' map, by its table: quotients without their slow path. */
struct dynamic_coder {
	typedef exact_coded<dynamic_format, 256> exact;

	struct scale {
		float scale, inverse;
		uint32_t row;
	};

	static __device__ __forceinline__ bool measure(struct tsr_gpu_tables, unsigned part,
						       float largest, float least, struct scale *s)
	{
		(void)least;
		s->scale = largest;
		s->inverse = tsr_reciprocal_step(largest, tsr_reciprocal_estimate(largest));
		s->row = exact::rule_of(part).row;
		return largest >= 0x1p-60f;
	}
	template <unsigned PART>
	static __device__ __forceinline__ uint32_t word(const struct pair_args *p,
							const struct scale *s, const float *x)
	{
		const struct tsr_gpu_tables tables = exact::tables_of(p, PART);
		const struct tsr_table_row *row = &tables.row[s->row];
		const uint32_t *entry = tables.entry + row->first;
		uint32_t byte[4];

#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float t = tsr_near_quotient(fabsf(x[i]), s->scale, s->inverse);
			const float clamped = tsr_clamp(t, row->lowest, row->highest);
			const uint32_t key = tsr_bits_from_f32(clamped) << 1 |
					     tsr_bits_from_f32(x[i]) >> 31;
			const uint32_t code = tsr_table_code(entry, row->bucket, row->shift, key);

			byte[i] = tsr_table_byte(exact::rule_of(PART).layout, code, x[i], 1);
		}
		return tsr_word_of_bytes(byte);
	}
};

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
static __device__ __forceinline__ bool near_step(const struct pair_args *p, bool inside)
{
	const struct step_args *a = &p->step;
	const unsigned thread = inside ? threadIdx.x : 0; /* what others read is not used */
	typename pair::scales scales;
	struct flash_words<N> x;
	struct flash_tile<N> t;
	uint32_t correction[N / 4], m[N / 4], v[N / 4];
	float g[N];
	bool ordinary;

	near_load<USUAL, N>(a, thread, &x);
	flash_gradients<N>(flash_grad_dtype<USUAL>(a), &x, g);
	flash_weights<N>(a->masks, &x, t.w);
	ordinary = flash_were_normal<N>(&x);
	ordinary &= pair::template decode<N>(p, thread, &x, t.m, t.v);
	ordinary &= near_run<pair::takes_roots, N>(a, g, &t);
	ordinary &= flash_narrow<N>(&t);
	ordinary &= pair::template measure<N>(p, &t, &scales);
	if (!__all_sync(TSR_WHOLE_WARP, ordinary || !inside))
		return false;
	flash_encode_weights<N>(a->masks, &t, correction);
	pair::template encode<N>(p, &t, &scales, m, v);
	pair::template store_scales<N>(a, inside, &scales);
	if (!inside)
		return true;
	store_words<N / 2>(a->part[TSR_PART_WEIGHT].plane[0], t.narrow);
	store_words<N / 4>(a->part[TSR_PART_WEIGHT].plane[1], correction);
	store_words<N / 4>(a->part[TSR_PART_MOMENTUM].plane[0], m);
	store_words<N / 4>(a->part[TSR_PART_VARIANCE].plane[0], v);
	return true;
}

#endif
