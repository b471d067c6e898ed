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
		const struct tsr_table_row *r = &p.tables.row[rule.row];
		const bool ordinary = m.largest < TSR_F32_INF && r->unit == 1.0f &&
				      r->lowest >= 0x1p-64f && d <= 0x1p60f &&
				      d * r->lowest >= 0x1p-90f;

		if (stores)
			((float *)p.plane[1])[g] = scale;
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

/* --- Estimates --------------------------------------------------------------------------------- */

/*
 * Codes of elements by estimates, and exact ones where these do not decide: of a codec with
 * `uint32_t estimate(c, x, &distance)`, whose lowest 8 bits are the code of x if the distance is at most
 * `c.limit`, which is below -1 if estimates decide nothing, and `uint32_t exact_code(c, x)`.
 */
template <class codec, int N>
static __device__ __forceinline__ void encode_estimated(const typename codec::coder &c,
							const float *x, uint8_t *out)
{
	float distance[N], farthest = -1.0f;

	/* Without a branch for each, so that the estimates overlap. */
#pragma unroll
	for (int k = 0; k < N; k++) {
		out[k] = (uint8_t)codec::estimate(c, x[k], &distance[k]);
		farthest = fmaxf(farthest, distance[k]);
	}
	if (farthest <= c.limit)
		return;
#pragma unroll
	for (int k = 0; k < N; k++) {
		if (!(distance[k] <= c.limit))
			out[k] = (uint8_t)codec::exact_code(c, x[k]);
	}
}

/* What estimates have of an 8-bit float. */
struct expansion {
	int fraction; /* bits of its significand behind the point */
	int bottom; /* its least normal value is 2^bottom */
	float largest; /* log2 of its largest value */
	int shift; /* u is 2^shift times as large as it is said to be: see expanded::code() */
};

/*
 * 8-bit floats with their range expanded: the code of x is of the value nearest to
 * u = largest (|x| / s)^(row / 16).  Estimates of u decide, but where it is near the middle between two.
 */
template <class format> struct expanded : tabled<format, true> {
	struct coder {
		const struct tsr_table_row *row;
		const uint32_t *entry; /* of the table */
		float scale;
		float reciprocal;
		float power;
		float clear; /* as far from a value, in 2^exponent of u, as estimates decide */
		float limit;
	};

	static __device__ __forceinline__ struct expansion expansion(void)
	{
		if (format::rule(true).set == TSR_TABLES_E4M3X)
			return { 3, -6, 8.8073549f, -13 };
		return { 2, -14, 15.8073549f, -6 };
	}
	/* Octaves of u: a group's least element has at least 16/7 of the least value, see tables.c. */
	static __device__ __forceinline__ float octaves(void)
	{
		const struct expansion e = expansion();

		return e.largest + (float)(e.fraction - e.bottom) - 1.1926451f;
	}

	/* tsr_table_expand(), by an estimate that is almost always right. */
	static __device__ __forceinline__ uint32_t row_of(const float *bound, struct magnitudes m)
	{
		const float absmax = tsr_f32_from_bits(m.largest);
		const float least = tsr_f32_from_bits(m.least), ratio = absmax / least;
		const float log = tsr_log2_estimate(ratio);
		const float row = 16.0f * octaves() * tsr_reciprocal_estimate(log);
		const uint32_t near = (uint32_t)fminf(fmaxf(row, 1.0f), TSR_TABLE_ROWS - 2.0f);

		if ((bound[near] >= ratio) & (bound[near + 1] < ratio))
			return near;
		return tsr_table_expand(bound, absmax, least);
	}

	/*
	 * What the estimate of u is off by at most, as a share of it, in 2^-22.  Of log2(|x| / s): 2.5, for
	 * the reciprocal, the product, the quotient and threshold that are compared where it is exact, and
	 * the logarithm; and what octaves it has as much again.  Of the logarithm of the largest value 2, of
	 * the sum 4, of the power 1.  Together log(2) (2.5 row / 16 + octaves + 6) + 1; u is below 2 of the
	 * units of `clear`.
	 */
	static __device__ __forceinline__ struct coder begin(const struct coded_planes &p,
							     struct magnitudes m, uint64_t g,
							     bool stores, struct scale_events *)
	{
		const float half = 0.5f / (float)(1 << expansion().fraction);
		const float scale = tsr_table_scale(format::rule(true),
						    tsr_f32_from_bits(m.largest));
		const uint32_t row = row_of(p.tables.bound, m);
		const float power = (float)row * 0x1p-4f;
		/* From row 9 on values are at least 2^-64 of the scale, and no element but 0 has code 0. */
		const bool ordinary = row >= 9 && scale >= 0x1p-26f && scale <= 0x1p60f;

		if (stores) {
			((float *)p.plane[1])[g] = scale;
			((uint8_t *)p.plane[2])[g] = (uint8_t)row;
		}
		return { &p.tables.row[row],
			 p.tables.entry,
			 scale,
			 tsr_reciprocal_step(scale, tsr_reciprocal_estimate(scale)),
			 power,
			 half - 0x1p-21f * (1.75f * power + 0.7f * octaves() + 6.0f),
			 ordinary ? 0.0f : -2.0f };
	}

	/*
	 * The code of x in the lowest 8 bits.  The last place of the sum is a step between values, so that
	 * its lowest bits are the significand, and the others the exponent, which has to be added to them:
	 * the shift is such that nothing has to be taken off.  @distance is above 0 where u is not clear.
	 */
	static __device__ __forceinline__ uint32_t estimate(const struct coder &c, float x,
							    float *distance)
	{
		const struct expansion e = expansion();
		const float magic = (float)(1 << (23 - e.fraction));
		const float log = tsr_log2_estimate(fabsf(x) * c.reciprocal);
		const float u = tsr_exp2_estimate(
			tsr_fma(log, c.power, e.largest + (float)e.shift));
		const uint32_t normal = ::max(tsr_bits_from_f32(u),
					      (uint32_t)(127 + e.bottom + e.shift) << 23);
		const float unit = tsr_f32_from_bits(normal & TSR_F32_INF);
		const float sum = tsr_fma(unit, magic, u);
		const uint32_t bits = tsr_bits_from_f32(sum);

		*distance = tsr_fma(-c.clear, unit, fabsf(tsr_fma(-magic, unit, sum) - u));
		return ((bits >> (23 - e.fraction)) + bits) | (tsr_bits_from_f32(x) >> 24 & 0x80);
	}
	static __device__ __forceinline__ uint32_t exact_code(const struct coder &c, float x)
	{
		const struct tsr_table_row *r = c.row;
		const float d = tsr_table_divisor(c.scale);
		const uint32_t key = tsr_table_key(x, d, r->unit, r->lowest, r->highest);
		const uint32_t code = tsr_table_code(c.entry + r->first, r->bucket, r->shift, key);

		return tsr_table_byte(format::rule(true).layout, code, x,
				      tsr_table_least(r, c.scale));
	}
	template <int N>
	static __device__ __forceinline__ void encode(const struct coded_planes &,
						      const struct coder &c, const float *x,
						      uint8_t *out)
	{
		encode_estimated<expanded, N>(c, x, out);
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

/* --- log<k> ------------------------------------------------------------------------------------ */

template <unsigned bits> struct logarithmic : group_codec {
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
		const uint32_t *entry; /* of the table */
		float scale;
		float inverse; /* of its square */
		float slope; /* the code of x is the nearest to last() (1 + slope log2(x / scale^2)) */
		float limit; /* as far from the nearest one as estimates decide */
	};

	static __device__ __forceinline__ float last(void)
	{
		return (float)((1u << bits) - 1);
	}

	/*
	 * What is stored for a NaN is the largest scale, whichever NaN its root is.
	 *
	 * A range of R octaves has last - 1 steps, and codes change half a step from their values.  In
	 * steps, estimates are off by less than 2^-12 and 2^-19 of the steps of an octave of variances.  Of
	 * log2: the scale's square, its reciprocal and the product 2^-22 of their value, the square of the
	 * quotient of exact roots and of a threshold as much, a logarithm 2^-22, and that share of itself
	 * where it is more than one, as the 2 R octaves of a range may be.  Of the slope: the logarithm that
	 * R is, a reciprocal, and a division.  Sums are rounded.  Estimates are for groups whose range
	 * reaches their least root, so that no element but 0 has code 0.
	 */
	static __device__ __forceinline__ struct coder begin(const struct coded_planes &p,
							     struct magnitudes m, uint64_t g,
							     bool stores, struct scale_events *)
	{
		const float least = tsr_sqrt(tsr_f32_from_bits(m.least));
		const uint32_t s = m.largest > TSR_F32_INF ? TSR_F28_MAX
							   : tsr_f28_from_root(tsr_sqrt(
								     tsr_f32_from_bits(m.largest)));
		const float scale = tsr_f28_scale(s);
		const uint32_t range = tsr_log_range(p.tables.bound, scale, least);
		const float reach = p.tables.bound[range];
		const float octaves = -tsr_log2_estimate(reach);
		const float steps = (last() - 1.0f) * tsr_reciprocal_estimate(2.0f * octaves);
		const bool ordinary = scale >= 0x1p-60f && scale <= 0x1p60f &&
				      m.largest < TSR_F32_INF && scale * reach <= least;

		if (stores)
			((uint32_t *)p.plane[1])[g] = s | range;
		return { &p.tables.row[range],
			 p.tables.entry,
			 scale,
			 tsr_reciprocal_estimate(scale * scale),
			 steps / last(),
			 ordinary ? 0.5f - tsr_fma(steps, 0x1p-19f, 0x1p-12f) : -2.0f };
	}

	static __device__ __forceinline__ uint32_t exact_code(const struct coder &c, float x)
	{
		return tsr_log_code(c.row, c.entry + c.row->first, tsr_sqrt(x),
				    tsr_table_divisor(c.scale));
	}
	/* Of 0, and of what is below, the sum is 0. */
	static __device__ __forceinline__ uint32_t estimate(const struct coder &c, float x,
							    float *distance)
	{
		const float log = tsr_log2_estimate(x * c.inverse);
		const float part = tsr_fma_from_0_to_1(log, c.slope, 1.0f);
		const float rounded = tsr_fma(part, last(), 0x1.8p23f);

		*distance = fabsf(tsr_fma(part, last(), -(rounded - 0x1.8p23f)));
		return tsr_bits_from_f32(rounded);
	}
	template <int N>
	static __device__ __forceinline__ void encode(const struct coded_planes &,
						      const struct coder &c, const float *x,
						      code_type *out)
	{
		encode_estimated<logarithmic, N>(c, x, out);
	}
};

#endif
