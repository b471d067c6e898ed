/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs whose codes are tables, those of the CPU, copied: so are the bits.  See gpu_groups.cuh. */
#ifndef TSR_GPU_TABLES_CUH
#define TSR_GPU_TABLES_CUH

#include "gpu/gpu_groups.cuh"

extern "C" {
#include "codec/logs_math.h"
#include "codec/tables.h"
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
		const uint32_t *entry; /* of bucket 0, if the row had it */
		float divisor, unit, lowest, highest;
		float reciprocal; /* of the divisor; 0: the fast path is not for this group */
		uint32_t shift, least;
	};

	template <bool ordinary>
	static __device__ __forceinline__ uint32_t code(const struct coder &c, float x)
	{
		const float n = fabsf(x);
		const float t = ordinary ? tsr_near_quotient(n, c.divisor, c.reciprocal)
					 : n / c.divisor * c.unit;
		const uint32_t key = tsr_table_key_of(t, x, c.lowest, c.highest);

		return tsr_table_byte(format::rule(VARIANCE).layout,
				      tsr_table_code(c.entry, 0, c.shift, key), x, c.least);
	}

	/*
	 * Magnitudes are at most 2^16 divisors unless one is not finite.  Quotients from `lowest` on are
	 * exact from the reciprocal then, and others, whichever they are taken for, below it.
	 */
	static __device__ __forceinline__ struct coder begin(const struct coded_planes &p,
							     struct magnitudes m, uint64_t g,
							     bool stores, struct scale_events *)
	{
		const struct tsr_table_rule rule = format::rule(VARIANCE);
		const float absmax = tsr_f32_from_bits(m.largest);
		const float scale = tsr_table_scale(rule, absmax), d = tsr_table_divisor(scale);
		const uint32_t row = rule.expanded ? tsr_table_expand(p.tables.bound, absmax,
								      tsr_f32_from_bits(m.least))
						   : rule.row;
		const struct tsr_table_row *r = &p.tables.row[row];
		const bool ordinary = m.largest < TSR_F32_INF && r->unit == 1.0f &&
				      r->lowest >= 0x1p-64f && d <= 0x1p60f &&
				      d * r->lowest >= 0x1p-90f;

		if (stores)
			((float *)p.plane[1])[g] = scale;
		if (stores && rule.expanded)
			((uint8_t *)p.plane[2])[g] = (uint8_t)row;
		return { p.tables.entry + r->first - r->bucket,
			 d,
			 r->unit,
			 r->lowest,
			 r->highest,
			 ordinary ? tsr_reciprocal_step(d, tsr_reciprocal_estimate(d)) : 0.0f,
			 r->shift,
			 rule.keeps ? tsr_table_least(r, scale) : 0 };
	}
	template <int N>
	static __device__ __forceinline__ void encode(const struct coded_planes &,
						      const struct coder &c, const float *x,
						      code_type *out)
	{
		/* Two loops, so that the look-ups of the first one overlap. */
		if (c.reciprocal > 0.0f) {
#pragma unroll
			for (int k = 0; k < N; k++)
				out[k] = (code_type)code<true>(c, x[k]);
		} else {
#pragma unroll
			for (int k = 0; k < N; k++)
				out[k] = (code_type)code<false>(c, x[k]);
		}
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
		float inverse; /* of its square */
		float slope,
			last; /* the code of x is the nearest to last + slope log2(x / scale^2) */
		float clear; /* as far from the nearest one as estimates decide; -1: they do not */
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
	 * rounded.
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
			 tsr_reciprocal_estimate(scale * scale),
			 slope,
			 last,
			 ordinary ? 0.5f - tsr_fma(slope, 0x1p-19f, 0x1p-12f) : -1.0f };
	}

	static __device__ __forceinline__ uint32_t exact_code(const struct coder &c, float x)
	{
		return tsr_log_code(c.row, c.entry, tsr_sqrt(x), tsr_table_divisor(c.scale));
	}
	/* The code of x, if it is no farther from the number that is rounded than is clear. */
	static __device__ __forceinline__ uint32_t code(const struct coder &c, float x,
							float *distance)
	{
		const float steps = tsr_fma(tsr_log2_estimate(x * c.inverse), c.slope, c.last);
		const float inside = fmaxf(steps, 1.0f);
		const float rounded = inside + 0x1.8p23f;

		*distance = fabsf(inside - (rounded - 0x1.8p23f));
		return x > 0.0f ? tsr_bits_from_f32(rounded) & 0xffu : 0;
	}
	template <int N>
	static __device__ __forceinline__ void encode(const struct coded_planes &,
						      const struct coder &c, const float *x,
						      code_type *out)
	{
		float distance[N], farthest = 0.0f;

		/* Without a branch for each, so that the estimates overlap. */
#pragma unroll
		for (int k = 0; k < N; k++) {
			out[k] = (code_type)code(c, x[k], &distance[k]);
			farthest = fmaxf(farthest, distance[k]);
		}
		if (farthest > c.clear) {
#pragma unroll
			for (int k = 0; k < N; k++)
				if (!(distance[k] <= c.clear))
					out[k] = (code_type)exact_code(c, x[k]);
		}
	}
};

#endif
