/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs whose codes are tables, those of the CPU, copied: so are the bits.  See gpu_groups.cuh. */
#ifndef TSR_GPU_TABLES_CUH
#define TSR_GPU_TABLES_CUH

#include "gpu/gpu_groups.cuh"

extern "C" {
#include "codec/logs_math.h"
#include "codec/tables.h"
}

/* --- Looking up codes ------------------------------------------------------------------------- */

/* What encoding by a row takes. */
struct row_coder {
	const uint32_t *entry; /* of the row's first bucket */
	float divisor, unit, lowest, highest;
	float reciprocal; /* of the divisor, for the fast path of quotients; 0: it is not for this group */
	uint32_t bucket, shift;
};

/*
 * Of a group with this largest magnitude, which is at most 2^16 divisors unless it is not finite: quotients
 * from `lowest` on are exact from the reciprocal, and others, whichever they are taken for, below it.
 */
static __device__ __forceinline__ bool has_ordinary_quotients(const struct tsr_table_row *r,
							      float divisor, uint32_t largest)
{
	return largest < TSR_F32_INF && r->unit == 1.0f && r->lowest >= 0x1p-64f &&
	       divisor <= 0x1p60f && divisor * r->lowest >= 0x1p-90f;
}

static __device__ __forceinline__ struct row_coder row_coder_of(struct tsr_gpu_tables tables,
								uint32_t row, float scale,
								uint32_t largest)
{
	const struct tsr_table_row *r = &tables.row[row];
	const float d = tsr_table_divisor(scale);

	return { tables.entry + r->first,
		 d,
		 r->unit,
		 r->lowest,
		 r->highest,
		 has_ordinary_quotients(r, d, largest)
			 ? tsr_reciprocal_step(d, tsr_reciprocal_estimate(d))
			 : 0.0f,
		 r->bucket,
		 r->shift };
}

template <bool ordinary>
static __device__ __forceinline__ uint32_t row_code(const struct row_coder &c, float x)
{
	const float n = fabsf(x);
	const float t = ordinary ? tsr_near_quotient(n, c.divisor, c.reciprocal)
				 : n / c.divisor * c.unit;

	return tsr_table_code(c.entry, c.bucket, c.shift,
			      tsr_table_key_of(t, x, c.lowest, c.highest));
}

/* --- Rows of 8-bit floats, and of bitsandbytes' map -------------------------------------------- */

/* Of a codec of @format, for variances or for momenta. */
template <class format, bool VARIANCE> struct tabled : group_codec {
	typedef uint8_t code_type;
	static const unsigned usual = 128;

	/* What a group costs is shared by as many: on an H200 1.4 times as fast as with a warp per group. */
	static __host__ __device__ constexpr int elements(unsigned)
	{
		return 16;
	}

	struct stored {
		const struct tsr_table_row *row;
		float scale;
	};

	static __device__ __forceinline__ struct stored load(const struct coded_planes &p,
							     uint64_t g)
	{
		const struct tsr_table_rule rule = format::rule(VARIANCE);
		const uint8_t *expand = (const uint8_t *)p.plane[2];

		return { &p.tables.row[rule.expanded ? expand[g] : rule.row],
			 ((const float *)p.plane[1])[g] };
	}
	template <int N>
	static __device__ __forceinline__ void decode(const struct coded_planes &,
						      const struct stored &s, const code_type *in,
						      float *x)
	{
		const enum tsr_table_layout layout = format::rule(VARIANCE).layout;

#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] = tsr_table_value(s.row->value[tsr_table_index(layout, in[k])],
					       tsr_table_sign(layout, in[k]), s.scale);
	}

	struct coder {
		struct row_coder row;
		uint32_t least;
	};

	static __device__ __forceinline__ struct coder coder_of(struct tsr_gpu_tables tables,
								uint32_t row, float scale,
								uint32_t largest)
	{
		const bool keeps = format::rule(VARIANCE).keeps;

		return { row_coder_of(tables, row, scale, largest),
			 keeps ? tsr_table_least(&tables.row[row], scale) : 0 };
	}
	template <bool ordinary>
	static __device__ __forceinline__ uint32_t code(const struct coder &c, float x)
	{
		return tsr_table_byte(format::rule(VARIANCE).layout, row_code<ordinary>(c.row, x),
				      x, c.least);
	}

	static __device__ __forceinline__ struct coder begin(const struct coded_planes &p,
							     struct magnitudes m, uint64_t g,
							     bool stores, struct scale_events *)
	{
		const struct tsr_table_rule rule = format::rule(VARIANCE);
		const float absmax = tsr_f32_from_bits(m.largest);
		const float least = tsr_f32_from_bits(m.least);
		const float scale = tsr_table_scale(rule, absmax);
		uint32_t row = rule.row;

		if (rule.expanded)
			row = tsr_table_expand(p.tables.bound, absmax, least);
		if (stores) {
			((float *)p.plane[1])[g] = scale;
			if (rule.expanded)
				((uint8_t *)p.plane[2])[g] = (uint8_t)row;
		}
		return coder_of(p.tables, row, scale, m.largest);
	}
	template <int N>
	static __device__ __forceinline__ void encode(const struct coded_planes &,
						      const struct coder &c, const float *x,
						      code_type *out)
	{
		const bool ordinary = c.row.reciprocal > 0.0f;

#pragma unroll
		for (int k = 0; k < N; k++)
			out[k] = (code_type)(ordinary ? code<true>(c, x[k]) : code<false>(c, x[k]));
	}
};

/* Their formats: format_<id>. */
#define X(id, each, loops, format, ...) \
	struct format_##id { \
		static __host__ __device__ __forceinline__ struct tsr_table_rule rule( \
			bool variance) \
		{ \
			return tsr_##format##_rule(variance); \
		} \
	};
TSR_TABLED_LIST(X)
#undef X

/* --- log8 -------------------------------------------------------------------------------------- */

struct logarithmic : group_codec {
	typedef uint8_t code_type;
	typedef uint32_t stored;
	static const unsigned usual = 64;

	static __host__ __device__ constexpr int elements(unsigned)
	{
		return 16;
	}

	static __device__ __forceinline__ stored load(const struct coded_planes &p, uint64_t g)
	{
		return ((const uint32_t *)p.plane[1])[g];
	}
	template <int N>
	static __device__ __forceinline__ void decode(const struct coded_planes &p, stored s,
						      const code_type *in, float *x)
	{
		const float *value = p.tables.row[tsr_f28_range(s)].value;

#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] = tsr_log_variance(value[in[k]], tsr_f28_scale(s));
	}

	struct coder {
		const struct tsr_table_row *row;
		const uint32_t *entry;
		float scale;
		float inverse; /* of its square; 0: the fast path is not for this group */
		float slope,
			last; /* the code of x is the nearest to last + slope log2(x / scale^2) */
		float clear; /* as far from the nearest one as estimates decide */
	};

	/* What is stored for a NaN is the largest scale, whichever NaN its root is. */
	static __device__ __forceinline__ struct coder begin(const struct coded_planes &p,
							     struct magnitudes m, uint64_t g,
							     bool stores, struct scale_events *)
	{
		uint32_t s = m.largest > TSR_F32_INF
				     ? TSR_F28_MAX
				     : tsr_f28_from_root(tsr_sqrt(tsr_f32_from_bits(m.largest)));

		s |= tsr_log_range(p.tables.bound, tsr_f28_scale(s),
				   tsr_sqrt(tsr_f32_from_bits(m.least)));
		if (stores)
			((uint32_t *)p.plane[1])[g] = s;
		return coder_of(p.tables, tsr_f28_scale(s), tsr_f28_range(s), m.largest);
	}

	/*
	 * A range of R octaves has last - 1 steps, and codes change half a step from their values.  In
	 * steps, estimates are off by less than slope 2^-19 + 2^-12.  Of log2: the scale's square, its
	 * reciprocal and the product 2^-22 of their value, the square of the quotient of exact roots and of a
	 * threshold as much, a logarithm 2^-22, and that share of itself where it is more than one, as the
	 * 2 R octaves of a range may be.  Of slope: the logarithm that R is, and a reciprocal.  The sum is
	 * rounded.  Twice that is left.
	 */
	static __device__ __forceinline__ struct coder coder_of(struct tsr_gpu_tables tables,
								float scale, uint32_t range,
								uint32_t largest)
	{
		const struct tsr_table_row *row = &tables.row[range];
		const float last = (float)(row->ncodes - 1);
		const float octaves = -tsr_log2_estimate(tables.bound[range]);
		const float slope = (last - 1.0f) * tsr_reciprocal_estimate(2.0f * octaves);
		const bool ordinary = scale >= 0x1p-60f && scale <= 0x1p60f &&
				      largest < TSR_F32_INF;

		return { row,
			 tables.entry + row->first,
			 scale,
			 ordinary ? tsr_reciprocal_estimate(scale * scale) : 0.0f,
			 slope,
			 last,
			 0.5f - tsr_fma(slope, 0x1p-18f, 0x1p-11f) };
	}

	static __device__ __forceinline__ uint32_t exact_code(const struct coder &c, float x)
	{
		return tsr_log_code(c.row, c.entry, tsr_sqrt(x), tsr_table_divisor(c.scale));
	}
	static __device__ __forceinline__ uint32_t code(const struct coder &c, float x)
	{
		const float steps = tsr_fma(tsr_log2_estimate(x * c.inverse), c.slope, c.last);
		const float inside = fmaxf(steps, 1.0f);
		const float rounded = inside + 0x1.8p23f;
		uint32_t code = tsr_bits_from_f32(rounded) & 0xffu;

		if (fabsf(inside - (rounded - 0x1.8p23f)) > c.clear)
			code = exact_code(c, x);
		return x > 0.0f ? code : 0;
	}
	template <int N>
	static __device__ __forceinline__ void encode(const struct coded_planes &,
						      const struct coder &c, const float *x,
						      code_type *out)
	{
#pragma unroll
		for (int k = 0; k < N; k++)
			out[k] = (code_type)(c.inverse > 0.0f ? code(c, x[k])
							      : exact_code(c, x[k]));
	}
};

#endif
