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
static __device__ __forceinline__ entry load_entry(const void *plane, uint64_t tile)
{
	return ((const entry *)plane)[tile / TEAM];
}

template <class entry, int TEAM>
static __device__ __forceinline__ void store_entry(void *plane, uint64_t tile, bool inside, entry x)
{
	if (inside && threadIdx.x % TEAM == 0)
		((entry *)plane)[tile / TEAM] = x;
}

/* All but the scales. */
template <bool USUAL, int N>
static __device__ __forceinline__ void near_load(const struct step_args *a, uint64_t tile,
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
						      uint64_t tile, const struct flash_words<N> *x,
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
						      const float *table, const struct scales *s,
						      uint32_t *m, uint32_t *v)
	{
		const float scale = tsr_f28_scale(s->stored), eps = p->eps;
		const float slope = p->slope[tsr_f28_range(s->stored)];
		const float inverse = tsr_reciprocal_estimate(scale);
		const uint32_t error = 8 + (uint32_t)slope / 16; /* twice: the sum is doubled */

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
	static __device__ __forceinline__ void store_scales(const struct step_args *a,
							    uint64_t tile, bool inside,
							    const struct scales *s)
	{
		const int team = group / N;

		store_entry<uint16_t, team>(a->part[TSR_PART_MOMENTUM].plane[1], tile, inside,
					    (uint16_t)tsr_e8m8_from_f32(s->ratio));
		store_entry<uint32_t, team>(a->part[TSR_PART_VARIANCE].plane[1], tile, inside,
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

	static const uint32_t table_nbytes = coder::table_nbytes;

	static __device__ __forceinline__ void fill(const struct pair_args *p, float *table)
	{
		coder::fill(p, table);
	}

	template <unsigned PART, int N>
	static __device__ __forceinline__ void decode_part(const struct pair_args *p,
							   const float *table, uint64_t tile,
							   const uint32_t *word, float *x)
	{
		const uint64_t g = tile / (group / N);
		const uint32_t row = exact::stored_row(p, PART, g);
		const float scale = ((const float *)p->step.part[PART].plane[1])[g];

#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] = coder::template value<PART>(table, row, word[k / 4], k % 4);
#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] *= scale;
	}
	template <int N>
	static __device__ __forceinline__ bool decode(const struct pair_args *p, const float *table,
						      uint64_t tile, const struct flash_words<N> *x,
						      float *m, float *v)
	{
		decode_part<TSR_PART_MOMENTUM, N>(p, table, tile, x->momentum, m);
		decode_part<TSR_PART_VARIANCE, N>(p, table, tile, x->variance, v);
		return coder::template are_variances<N>(x->variance);
	}

	/* @least and @largest are those of the thread. */
	template <int N>
	static __device__ __forceinline__ bool measure_part(const struct pair_args *p,
							    unsigned part, float least,
							    float largest, typename coder::scale *s)
	{
		bool fits;

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
		float least = fabsf(t->m[0]), largest = fabsf(t->m[0]);
		bool ordinary;

#pragma unroll
		for (int k = 1; k < N; k++) {
			least = fminf(least, fabsf(t->m[k]));
			largest = tsr_max_or_nan(largest, fabsf(t->m[k]));
		}
		ordinary = measure_part<N>(p, m, least, largest, &s->part[m]);
		return measure_part<N>(p, v, t->least_v, t->largest_v, &s->part[v]) & ordinary;
	}

	template <int N>
	static __device__ __forceinline__ void encode(const struct pair_args *p,
						      const struct flash_tile<N> *t,
						      const float *table, const struct scales *s,
						      uint32_t *m, uint32_t *v)
	{
		const unsigned momentum = TSR_PART_MOMENTUM, variance = TSR_PART_VARIANCE;

#pragma unroll
		for (int k = 0; k < N; k += 4) {
			m[k / 4] = coder::template word<momentum>(p, table, &s->part[momentum],
								  &t->m[k]);
			v[k / 4] = coder::template word<variance>(p, table, &s->part[variance],
								  &t->v[k]);
		}
	}

	template <int N>
	static __device__ __forceinline__ void store_scales(const struct step_args *a,
							    uint64_t tile, bool inside,
							    const struct scales *s)
	{
		const int team = group / N;

#pragma unroll
		for (unsigned part = TSR_PART_MOMENTUM; part < TSR_PARTS; part++) {
			store_entry<float, team>(a->part[part].plane[1], tile, inside,
						 s->part[part].scale);
			if (exact::rule_of(part).expanded)
				store_entry<uint8_t, team>(a->part[part].plane[2], tile, inside,
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
	/* Codes without their sign. */
	static const uint32_t table_nbytes = TSR_TABLE_ROWS * 128 * sizeof(float);

	static __device__ __forceinline__ void fill(const struct pair_args *p, float *table)
	{
		copy_rows(table, p->momentum.value, TSR_TABLE_ROWS, 128, TSR_TABLE_CODES);
	}
	template <unsigned PART>
	static __device__ __forceinline__ float value(const float *table, uint32_t row,
						      uint32_t word, unsigned i)
	{
		const float magnitude = look_up(table, row << 9, word, i, 0x7f);
		const uint32_t sign = word << (24 - 8 * i) & TSR_F32_SIGN;

		return PART == TSR_PART_MOMENTUM
			       ? tsr_f32_from_bits(tsr_bits_from_f32(magnitude) ^ sign)
			       : magnitude;
	}
	/* No encoder gives a variance a sign. */
	template <int N> static __device__ __forceinline__ bool are_variances(const uint32_t *word)
	{
		uint32_t all = word[0];

#pragma unroll
		for (int k = 1; k < N / 4; k++)
			all |= word[k];
		return !(all & 0x80808080u);
	}

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
							const float *table, const struct scale *s,
							const float *x)
	{
		float low[4], high[4];
		uint32_t word;

		(void)table;
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
	/* What codes of momenta and of variances stand for, and the entries of both rows. */
	static const uint32_t nvalues = 2 * TSR_TABLE_CODES;
	static const uint32_t table_nbytes = (nvalues + NEAR_DYNAMIC_ENTRIES) * sizeof(float);

	/*
	 * An entry of tsr_table_code(), of the code in the upper 8 bits and where the next one begins,
	 * becomes what makes it the code in the upper 8 bits when the rest of a key is added.
	 */
	static __device__ __forceinline__ uint32_t entry_to_add(uint32_t entry)
	{
		return (entry & 0xff000000u) + (0x1000000u - (entry & 0xffffffu));
	}

	static __device__ __forceinline__ void fill(const struct pair_args *p, float *table)
	{
		copy_rows(table, p->momentum.value, 2, TSR_TABLE_CODES, TSR_TABLE_CODES);
		for (uint32_t i = threadIdx.x; i < p->nentries; i += blockDim.x)
			table[nvalues + i] = tsr_f32_from_bits(entry_to_add(p->momentum.entry[i]));
	}
	template <unsigned PART>
	static __device__ __forceinline__ float value(const float *table, uint32_t row,
						      uint32_t word, unsigned i)
	{
		return look_up(table, row << 10, word, i, 0xff);
	}
	template <int N> static __device__ __forceinline__ bool are_variances(const uint32_t *word)
	{
		return (void)word, true;
	}

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
							const float *table, const struct scale *s,
							const float *x)
	{
		const struct pair_row *row = &p->row[PART == TSR_PART_VARIANCE];
		const uint32_t *entry = (const uint32_t *)table + nvalues;
		uint32_t byte[4];

#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float t = tsr_near_quotient(fabsf(x[i]), s->scale, s->inverse);
			const float clamped = fminf(fmaxf(t, row->lowest), row->highest);
			const uint32_t sign = PART == TSR_PART_MOMENTUM
						      ? tsr_bits_from_f32(x[i]) >> 31
						      : 0;
			const uint32_t key = tsr_bits_from_f32(clamped) << 1 | sign;
			const int bucket = (int)(key >> row->shift) - row->before;
			const int code = (int)((entry[bucket] + (key & row->rest)) >> 24);

			if (PART == TSR_PART_MOMENTUM)
				byte[i] = (uint32_t)::max(127 + (sign ? -code : code), 0);
			else
				byte[i] = (uint32_t)code;
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
static __device__ __forceinline__ bool near_step(const struct pair_args *p, const float *table,
						 uint64_t tile, bool inside)
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
