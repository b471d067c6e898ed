/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of states whose codes are tables, COAT's and bitsandbytes', for step_near.cuh. */
#ifndef TSR_GPU_STEP_NEAR_CODED_CUH
#define TSR_GPU_STEP_NEAR_CODED_CUH

#include "gpu/step/step_near.cuh"

/* The code of an element by the CPU's formula. */
template <class exact>
static __device__ __noinline__ uint32_t exact_code(const struct pair_args *p, unsigned part,
						   uint32_t row, float scale, float x)
{
	const struct coded_group g = coded_group_of(exact::rule_of(part), exact::tables_of(p, part),
						    row, scale);

	return encode_one(exact::rule_of(part), &g, x);
}

template <class exact> struct near_code {
	const struct pair_args *p;
	unsigned part;
	uint32_t row;
	float scale;
	const float *x;

	template <class scales>
	__device__ __forceinline__ near_code(const struct pair_args *p_, unsigned part_,
					     const scales *s, const float *x_)
	    : p(p_), part(part_), row(s[part_].row), scale(s[part_].scale), x(x_)
	{
	}

	__device__ __forceinline__ uint32_t operator()(unsigned i) const
	{
		return exact_code<exact>(p, part, row, scale, pick(x, i));
	}
};

/*
 * What pairs of them share, with the codes of a part from @coder.  Besides what flash asks for: no new
 * momentum is 0, the magnitudes of a group's are from 2^-100 to 2^60, and as many times as the coder
 * takes apart from each other.
 */
template <class coder> struct near_coded {
	typedef typename coder::exact exact;
	static const int group = exact::group;
	static const unsigned block = 896;
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
							   const float *table, uint32_t tile,
							   const uint32_t *word, float *x)
	{
		const uint32_t g = tile / (group / N);
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
						      uint32_t tile, const struct flash_words<N> *x,
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
		uint32_t m_other[N / 4], v_other[N / 4], differ = 0;

#pragma unroll
		for (int k = 0; k < N; k += 4) {
			m[k / 4] = coder::template word<momentum>(p, table, &s->part[momentum],
								  &t->m[k], &m_other[k / 4]);
			v[k / 4] = coder::template word<variance>(p, table, &s->part[variance],
								  &t->v[k], &v_other[k / 4]);
			differ |= (m[k / 4] ^ m_other[k / 4]) | (v[k / 4] ^ v_other[k / 4]);
		}
		if (!differ)
			return;
#pragma unroll
		for (int k = 0; k < N; k += 4) {
			m[k / 4] = settle(m[k / 4], m_other[k / 4],
					  near_code<exact>(p, momentum, s->part, &t->m[k]));
			v[k / 4] = settle(v[k / 4], v_other[k / 4],
					  near_code<exact>(p, variance, s->part, &t->v[k]));
		}
	}

	template <int N>
	static __device__ __forceinline__ void store_scales(const struct step_args *a,
							    uint32_t tile, bool inside,
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

/*
 * COAT's E4M3 with expansion: the code of t = |x| / s is that of 448 t^(j/16) in E4M3, by its rounding
 * to nearest, for a group with row j of the table.  The power is exp2(j/16 log2 t): log2 is within
 * 2^-22 of its value, which times j/16 is at most 18.8 for codes above 1, or of 1, and t within 2^-21.1;
 * so the power is within 2^-18 + j 2^-24.9, relatively.  Of the least element, for which the row is chosen,
 * it is at least 1/224: no code is 0.
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
							const float *x, uint32_t *other)
	{
		float low[4], high[4];

		(void)table;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float octaves = tsr_log2_estimate(fabsf(x[i]) * s->inverse);
			const float power = tsr_exp2_estimate(
				tsr_fma(octaves, s->power, s->offset));
			const uint32_t magnitude = tsr_bits_from_f32(power);
			const uint32_t sign = tsr_bits_from_f32(x[i]) & TSR_F32_SIGN;

			low[i] = tsr_f32_from_bits(PART == TSR_PART_MOMENTUM ? magnitude | sign
									     : magnitude);
			high[i] = low[i] * s->twice;
		}
		*other = tsr_e4m3_word(high);
		return tsr_e4m3_word(low);
	}
};

/* bitsandbytes' map, by its table: quotients without their slow path, so that no code is in doubt. */
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
							const float *x, uint32_t *other)
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
		*other = tsr_word_of_bytes(byte);
		return *other;
	}
};

#endif
