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

	/* A warp has a group, so that it needs one row, which its threads find in the nearest cache. */
	static __host__ __device__ constexpr int elements(unsigned group)
	{
		return (int)group / 32;
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
		const uint32_t *entry; /* of the row's first bucket */
		float divisor, unit, lowest, highest;
		uint32_t bucket, shift, least;
	};

	static __device__ __forceinline__ struct coder coder_of(struct tsr_gpu_tables tables,
								uint32_t row, float scale)
	{
		const struct tsr_table_row *r = &tables.row[row];
		const bool keeps = format::rule(VARIANCE).keeps;

		return { tables.entry + r->first,
			 tsr_table_divisor(scale),
			 r->unit,
			 r->lowest,
			 r->highest,
			 r->bucket,
			 r->shift,
			 keeps ? tsr_table_least(r, scale) : 0 };
	}
	static __device__ __forceinline__ uint32_t code(const struct coder &c, float x)
	{
		const uint32_t key = tsr_table_key(x, c.divisor, c.unit, c.lowest, c.highest);

		return tsr_table_byte(format::rule(VARIANCE).layout,
				      tsr_table_code(c.entry, c.bucket, c.shift, key), x, c.least);
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
		return coder_of(p.tables, row, scale);
	}
	template <int N>
	static __device__ __forceinline__ void encode(const struct coded_planes &,
						      const struct coder &c, const float *x,
						      code_type *out)
	{
#pragma unroll
		for (int k = 0; k < N; k++)
			out[k] = (code_type)code(c, x[k]);
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

/* The code of a root by what is stored of its group. */
static __device__ __forceinline__ uint32_t log_code_of(struct tsr_gpu_tables tables,
						       uint32_t stored, float root)
{
	const struct tsr_table_row *row = &tables.row[tsr_f28_range(stored)];

	return tsr_log_code(row, tables.entry + row->first, root,
			    tsr_table_divisor(tsr_f28_scale(stored)));
}

struct logarithmic : group_codec {
	typedef uint8_t code_type;
	typedef uint32_t stored, coder;
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

	/* What is stored for a NaN is the largest scale, whichever NaN its root is. */
	static __device__ __forceinline__ coder begin(const struct coded_planes &p,
						      struct magnitudes m, uint64_t g, bool stores,
						      struct scale_events *)
	{
		uint32_t s = m.largest > TSR_F32_INF
				     ? TSR_F28_MAX
				     : tsr_f28_from_root(tsr_sqrt(tsr_f32_from_bits(m.largest)));

		s |= tsr_log_range(p.tables.bound, tsr_f28_scale(s),
				   tsr_sqrt(tsr_f32_from_bits(m.least)));
		if (stores)
			((uint32_t *)p.plane[1])[g] = s;
		return s;
	}
	template <int N>
	static __device__ __forceinline__ void encode(const struct coded_planes &p, coder s,
						      const float *x, code_type *out)
	{
#pragma unroll
		for (int k = 0; k < N; k++)
			out[k] = (code_type)log_code_of(p.tables, s, tsr_sqrt(x[k]));
	}
};

#endif
