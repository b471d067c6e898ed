/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States whose codes are tables, COAT's and bitsandbytes': see step_fast.cuh.
 *
 * A code is how many thresholds a number has passed.  An approximation of it with a bound on its error
 * is made twice, once a little too small and once a little too large: where both give the same code, it is
 * the right one, and where not, which is rare, the formula of the CPU is computed.  So bits do not depend
 * on what an estimate is, as long as it keeps its bound.  Weights and moments are computed exactly.
 */
#ifndef TSR_GPU_STEP_FAST_CODED_CUH
#define TSR_GPU_STEP_FAST_CODED_CUH

#include "gpu/gpu_tables.cuh"
#include "gpu/step/step_fast.cuh"

/* Of larger tiles the code is too long for the cache of instructions, for which warps then wait most. */
#define FAST_TILE 8

/* --- What forms with tables share -------------------------------------------------------------- */

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

/* Have the first @width values of @nrows rows in a table; all threads of the block. */
static __device__ __forceinline__ void copy_rows(float *to, const struct tsr_table_row *row,
						 uint32_t nrows, uint32_t width)
{
#pragma unroll 8
	for (uint32_t i = threadIdx.x; i < nrows * width; i += blockDim.x)
		to[i] = row[i / width].value[i % width];
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

/* The code of an element by the CPU's formula. */
template <class codec>
static __device__ __noinline__ uint32_t exact_code(struct tsr_gpu_tables tables, uint32_t row,
						   float scale, float x)
{
	return codec::code(codec::coder_of(tables, row, scale), x);
}

/* --- Both states ------------------------------------------------------------------------------- */

/*
 * With codes of a slot from @coder.  Besides what step_fast.cuh asks for: no new momentum is 0, the
 * magnitudes of a group's are from 2^-100 to 2^60, and as many times as the coder takes apart from each
 * other.  A block has as many threads as its registers allow without spills.
 */
template <class coder> struct fast_coded {
	typedef tabled<typename coder::format, false> momentum;
	typedef tabled<typename coder::format, true> variance;
	typedef step_states<group_tiles<momentum, coder::group>,
			    group_tiles<variance, coder::group>>
		states;
	static const int tile = FAST_TILE, team = coder::group / tile;
	static const bool any_order = true, takes_roots = false;
	static const unsigned block = 896, blocks = 1, table_nbytes = coder::table_nbytes;

	struct scales {
		typename coder::scale slot[TSR_SLOTS]; /* not of weights */
	};

	static void prepare(struct step_args *a)
	{
		coder::prepare(&a->numbers);
	}

	static __device__ __forceinline__ void fill(const struct step_args *a, float *table)
	{
		coder::fill(a, table);
	}

	static __device__ __forceinline__ void load_scales(const struct step_args *a,
							   struct tile_place at,
							   struct fast_words<tile> *x)
	{
#pragma unroll
		for (unsigned p = TSR_SLOT_MOMENTUM; p < TSR_SLOTS; p++) {
			const struct tsr_table_rule rule = coder::format::rule(p ==
									       TSR_SLOT_VARIANCE);

			x->scale[p] = load_entry<uint32_t, team>(a->slot[p].plane[1], at);
			x->row[p] = rule.expanded
					    ? load_entry<uint8_t, team>(a->slot[p].plane[2], at)
					    : rule.row;
		}
	}

	template <unsigned PART>
	static __device__ __forceinline__ void decode_slot(const float *table,
							   const struct fast_words<tile> *words,
							   const uint32_t *code, float *x)
	{
		const float scale = tsr_f32_from_bits(words->scale[PART]);

#pragma unroll
		for (int k = 0; k < tile; k++)
			x[k] = coder::template value<PART>(table, words->row[PART], code[k / 4],
							   k % 4);
#pragma unroll
		for (int k = 0; k < tile; k++)
			x[k] *= scale;
	}
	static __device__ __forceinline__ bool decode(const struct step_args *, const float *table,
						      const struct fast_words<tile> *x, float *m,
						      float *v)
	{
		decode_slot<TSR_SLOT_MOMENTUM>(table, x, x->momentum, m);
		decode_slot<TSR_SLOT_VARIANCE>(table, x, x->variance, v);
		return coder::are_variances(x->variance);
	}

	/* @least and @largest are those of the thread. */
	static __device__ __forceinline__ bool measure_slot(const struct step_args *a,
							    unsigned slot, float least,
							    float largest, typename coder::scale *s)
	{
		bool fits;

		least = least_of_team<team>(least);
		largest = team_max<team>(largest);
		/* Threads without elements encode with what is measured, too. */
		fits = coder::measure(a->slot[slot].tables, slot, largest, least, s);
		return fits && least >= 0x1p-100f && largest < 0x1p60f;
	}
	static __device__ __forceinline__ bool measure(const struct step_args *a,
						       const struct fast_tile<tile> *t,
						       struct scales *s)
	{
		const unsigned m = TSR_SLOT_MOMENTUM, v = TSR_SLOT_VARIANCE;
		float least = fabsf(t->m[0]), largest = fabsf(t->m[0]);
		bool ordinary;

#pragma unroll
		for (int k = 1; k < tile; k++) {
			least = fminf(least, fabsf(t->m[k]));
			largest = tsr_max_or_nan(largest, fabsf(t->m[k]));
		}
		ordinary = measure_slot(a, m, least, largest, &s->slot[m]);
		return measure_slot(a, v, t->least_v, t->largest_v, &s->slot[v]) & ordinary;
	}

	static __device__ __forceinline__ void store_scales(const struct step_args *a,
							    struct tile_place at, bool inside,
							    const struct scales *s)
	{
#pragma unroll
		for (unsigned p = TSR_SLOT_MOMENTUM; p < TSR_SLOTS; p++) {
			store_entry<float, team>(a->slot[p].plane[1], at, inside, s->slot[p].scale);
			if (coder::format::rule(p == TSR_SLOT_VARIANCE).expanded)
				store_entry<uint8_t, team>(a->slot[p].plane[2], at, inside,
							   (uint8_t)s->slot[p].row);
		}
	}

	/* Of the code words of a slot those that differ. */
	template <class codec>
	static __device__ __forceinline__ void settle_slot(const struct step_args *a, unsigned slot,
							   const struct scales *s, const float *x,
							   const uint32_t *other, uint32_t *code)
	{
		const typename coder::scale &scale = s->slot[slot];

#pragma unroll
		for (int k = 0; k < tile; k += 4)
			code[k / 4] = settle(code[k / 4], other[k / 4], [=](unsigned i) {
				return exact_code<codec>(a->slot[slot].tables, scale.row,
							 scale.scale, pick(&x[k], i));
			});
	}

	static __device__ __forceinline__ void encode(const struct step_args *a, const float *table,
						      struct tile_place at, bool inside,
						      const struct fast_tile<tile> *t,
						      const struct scales *s, uint32_t *m,
						      uint32_t *v)
	{
		const unsigned momenta = TSR_SLOT_MOMENTUM, variances = TSR_SLOT_VARIANCE;
		uint32_t m_other[tile / 4], v_other[tile / 4], differ = 0;

#pragma unroll
		for (int k = 0; k < tile; k += 4) {
			m[k / 4] = coder::template word<momenta>(a, table, &s->slot[momenta],
								 &t->m[k], &m_other[k / 4]);
			v[k / 4] = coder::template word<variances>(a, table, &s->slot[variances],
								   &t->v[k], &v_other[k / 4]);
			differ |= (m[k / 4] ^ m_other[k / 4]) | (v[k / 4] ^ v_other[k / 4]);
		}
		store_scales(a, at, inside, s);
		if (!differ)
			return;
		settle_slot<momentum>(a, momenta, s, t->m, m_other, m);
		settle_slot<variance>(a, variances, s, t->v, v_other, v);
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
	typedef format_e4m3x format;
	static const unsigned group = 128;
	/* Codes without their sign. */
	static const uint32_t table_nbytes = TSR_TABLE_ROWS * 128 * sizeof(float);

	static void prepare(struct fast_numbers *)
	{
	}
	static __device__ __forceinline__ void fill(const struct step_args *a, float *table)
	{
		copy_rows(table, a->slot[TSR_SLOT_MOMENTUM].tables.row, TSR_TABLE_ROWS, 128);
	}
	template <unsigned PART>
	static __device__ __forceinline__ float value(const float *table, uint32_t row,
						      uint32_t word, unsigned i)
	{
		const float magnitude = look_up(table, row << 9, word, i, 0x7f);
		const uint32_t sign = word << (24 - 8 * i) & TSR_F32_SIGN;

		return PART == TSR_SLOT_MOMENTUM
			       ? tsr_f32_from_bits(tsr_bits_from_f32(magnitude) ^ sign)
			       : magnitude;
	}
	/* No encoder gives a variance a sign. */
	static __device__ __forceinline__ bool are_variances(const uint32_t *word)
	{
		uint32_t all = word[0];

#pragma unroll
		for (int k = 1; k < FAST_TILE / 4; k++)
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
	static __device__ __forceinline__ uint32_t word(const struct step_args *a,
							const float *table, const struct scale *s,
							const float *x, uint32_t *other)
	{
		float low[4], high[4];

		(void)a, (void)table;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float octaves = tsr_log2_estimate(fabsf(x[i]) * s->inverse);
			const float power = tsr_exp2_estimate(
				tsr_fma(octaves, s->power, s->offset));
			const uint32_t magnitude = tsr_bits_from_f32(power);
			const uint32_t sign = tsr_bits_from_f32(x[i]) & TSR_F32_SIGN;

			low[i] = tsr_f32_from_bits(PART == TSR_SLOT_MOMENTUM ? magnitude | sign
									     : magnitude);
			high[i] = low[i] * s->twice;
		}
		*other = tsr_e4m3_word(high);
		return tsr_e4m3_word(low);
	}
};

/* Room for the entries of both rows of dyn8. */
#define DYNAMIC_ENTRIES 4352u

/* bitsandbytes' map, by its table: quotients without their slow path, so that no code is in doubt. */
struct dynamic_coder {
	typedef format_dyn8 format;
	static const unsigned group = 256;
	/* What codes of momenta and of variances stand for, and the entries of both rows. */
	static const uint32_t nvalues = 2 * TSR_TABLE_CODES;
	static const uint32_t table_nbytes = (nvalues + DYNAMIC_ENTRIES) * sizeof(float);

	/*
	 * An entry of tsr_table_code(), of the code in the upper 8 bits and where the next one begins,
	 * becomes what makes it the code in the upper 8 bits when the rest of a key is added.
	 */
	static __device__ __forceinline__ uint32_t entry_to_add(uint32_t entry)
	{
		return (entry & 0xff000000u) + (0x1000000u - (entry & 0xffffffu));
	}

	static void prepare(struct fast_numbers *to)
	{
		const struct tsr_tables *tables = tsr_tables_get(TSR_TABLES_DYNAMIC);

		to->nentries = tables->nentries;
		for (unsigned i = 0; i < 2; i++) {
			const struct tsr_table_row *row = &tables->row[i];

			to->row[i] = { row->value[1], row->highest, row->shift,
				       (1u << row->shift) - 1, (int)(row->bucket - row->first) };
		}
	}
	static __device__ __forceinline__ void fill(const struct step_args *a, float *table)
	{
		const struct tsr_gpu_tables tables = a->slot[TSR_SLOT_MOMENTUM].tables;

		for (uint32_t i = threadIdx.x; i < nvalues; i += blockDim.x) {
			const uint32_t row = i / TSR_TABLE_CODES;
			const enum tsr_table_layout layout = format::rule(row).layout;

			table[i] =
				tables.row[row].value[tsr_table_entry(layout, i % TSR_TABLE_CODES)];
		}
		for (uint32_t i = threadIdx.x; i < a->numbers.nentries; i += blockDim.x)
			table[nvalues + i] = tsr_f32_from_bits(entry_to_add(tables.entry[i]));
	}
	template <unsigned PART>
	static __device__ __forceinline__ float value(const float *table, uint32_t row,
						      uint32_t word, unsigned i)
	{
		return look_up(table, row << 10, word, i, 0xff);
	}
	static __device__ __forceinline__ bool are_variances(const uint32_t *)
	{
		return true;
	}

	struct scale {
		float scale, inverse;
		uint32_t row;
	};

	static __device__ __forceinline__ bool measure(struct tsr_gpu_tables, unsigned slot,
						       float largest, float least, struct scale *s)
	{
		(void)least;
		s->scale = largest;
		s->inverse = tsr_reciprocal_step(largest, tsr_reciprocal_estimate(largest));
		s->row = format::rule(slot == TSR_SLOT_VARIANCE).row;
		return largest >= 0x1p-60f;
	}
	template <unsigned PART>
	static __device__ __forceinline__ uint32_t word(const struct step_args *a,
							const float *table, const struct scale *s,
							const float *x, uint32_t *other)
	{
		const struct fast_row *row = &a->numbers.row[PART == TSR_SLOT_VARIANCE];
		const uint32_t *entry = (const uint32_t *)table + nvalues;
		uint32_t byte[4];

#pragma unroll
		for (int i = 0; i < 4; i++) {
			const float t = tsr_near_quotient(fabsf(x[i]), s->scale, s->inverse);
			const float clamped = fminf(fmaxf(t, row->lowest), row->highest);
			const uint32_t sign = PART == TSR_SLOT_MOMENTUM
						      ? tsr_bits_from_f32(x[i]) >> 31
						      : 0;
			const uint32_t key = tsr_bits_from_f32(clamped) << 1 | sign;
			const int bucket = (int)(key >> row->shift) - row->before;
			const int code = (int)((entry[bucket] + (key & row->rest)) >> 24);

			if (PART == TSR_SLOT_MOMENTUM)
				byte[i] = (uint32_t)::max(127 + (sign ? -code : code), 0);
			else
				byte[i] = (uint32_t)code;
		}
		*other = tsr_word_of_bytes(byte);
		return *other;
	}
};

#endif
