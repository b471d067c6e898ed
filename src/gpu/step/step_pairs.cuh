/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs of states that one kernel steps together and whose groups are larger than 32: tiles of any
 * elements, by the formulas of the CPU.  step_near.cuh has what is faster for ordinary ones.
 */
#ifndef TSR_GPU_STEP_PAIRS_CUH
#define TSR_GPU_STEP_PAIRS_CUH

#include "codec/ratio_math.h"
#include "gpu/gpu_tables.cuh"
#include "gpu/step/step_rules.cuh"

extern "C" {
#include "codec/log8_math.h"
}

/* What dyn8 needs of a row of its table, for elements that are not 0. */
struct pair_row {
	float lowest, highest; /* quotients are clamped to; the lowest has code 1 */
	uint32_t shift, rest; /* bits of a key that are in a bucket, and these bits */
	int before; /* the bucket of the first entry of all rows */
};

/* Room for the entries of both rows of dyn8. */
#define NEAR_DYNAMIC_ENTRIES 4352u

struct pair_args {
	struct step_args step;
	struct tsr_gpu_tables momentum, variance;
	uint32_t nentries; /* of dyn8's table */
	struct pair_row row[2]; /* of it, for momenta and variances */
	uint32_t run; /* chunks of 32 tiles that a warp takes together */
	float eps; /* of ratios */
	float reach; /* the farthest that a range of log8 reaches down */
	float slope[TSR_LOG_RANGES]; /* codes of log8 per octave, by its range */
};

template <int TEAM> static __device__ __forceinline__ uint32_t team_max_bits(uint32_t x)
{
#pragma unroll
	for (unsigned distance = 1; distance < TEAM; distance *= 2)
		x = ::max(x, __shfl_xor_sync(TSR_WHOLE_WARP, x, distance));
	return x;
}

template <int TEAM> static __device__ __forceinline__ uint32_t team_min_bits(uint32_t x)
{
#pragma unroll
	for (unsigned distance = 1; distance < TEAM; distance *= 2)
		x = ::min(x, __shfl_xor_sync(TSR_WHOLE_WARP, x, distance));
	return x;
}

/* What the magnitudes of a team's elements range over; the least one is of those that are not 0. */
struct magnitudes {
	uint32_t largest, least;
};

template <int N, int TEAM>
static __device__ __forceinline__ struct magnitudes team_magnitudes(const float *x)
{
	struct magnitudes m = { 0, INT32_MAX };

#pragma unroll 4
	for (int k = 0; k < N; k++) {
		const uint32_t mag = tsr_bits_from_f32(x[k]) & TSR_F32_MAG;

		m.largest = ::max(m.largest, mag);
		m.least = ::min(m.least, mag ? mag : (uint32_t)INT32_MAX);
	}
	m.largest = team_max_bits<TEAM>(m.largest);
	m.least = team_min_bits<TEAM>(m.least);
	return m;
}

/* --- tight: ratio8 and log8 -------------------------------------------------------------------- */

struct exact_tight {
	static const int group = 64;

	/* Codes of elements, for a positive divisor of ratios of which the unit is 1. */
	static __device__ __forceinline__ uint32_t ratio_code(float m, float root, float divisor,
							      float eps)
	{
		const float ratio = tsr_ratio_of(m, tsr_ratio_divisor(root, eps));

		return (uint32_t)tsr_softsign_code(ratio, divisor);
	}
	static __device__ __forceinline__ uint32_t root_code(const struct pair_args *p, float root,
							     uint32_t stored)
	{
		const struct tsr_table_row *row = &p->variance.row[tsr_f28_range(stored)];

		return tsr_log_code(row, p->variance.entry + row->first, root,
				    tsr_table_divisor(tsr_f28_scale(stored)));
	}

	template <int N>
	static __device__ __forceinline__ void load(const struct pair_args *p, uint64_t tile,
						    float *m, float *v)
	{
		const struct step_part *part = p->step.part;
		const uint64_t g = tile / (group / N);
		const enum tsr_scale format = part[TSR_PART_MOMENTUM].scale;
		const float scale = scale_value(
			load_scale(part[TSR_PART_MOMENTUM].plane[1], format, g), format);
		const uint32_t stored = ((const uint32_t *)part[TSR_PART_VARIANCE].plane[1])[g];
		const float *value = p->variance.row[tsr_f28_range(stored)].value;
		int8_t ratio[N];
		uint8_t root[N];

		load_tile<int8_t, N>(part[TSR_PART_MOMENTUM].plane[0], tile, ratio);
		load_tile<uint8_t, N>(part[TSR_PART_VARIANCE].plane[0], tile, root);
#pragma unroll 4
		for (int k = 0; k < N; k++) {
			v[k] = tsr_log_variance(value[root[k]], tsr_f28_scale(stored));
			m[k] = tsr_ratio_momentum(
				with_cpu_nan(group_softsign::value((float)ratio[k], scale), scale),
				tsr_ratio_divisor(tsr_sqrt(v[k]), p->eps));
		}
	}

	template <int N>
	static __device__ __forceinline__ void store_ratios(const struct pair_args *p,
							    uint64_t tile, bool inside, float *m,
							    const float *v)
	{
		const struct step_part *part = &p->step.part[TSR_PART_MOMENTUM];
		const int team = group / N;
		struct scale_events events = { 0, 0 };
		const struct scale_plane scales = { part->plane[1], part->scale };
		float scale, unit, factor;
		int8_t code[N];

#pragma unroll 4
		for (int k = 0; k < N; k++)
			m[k] = tsr_ratio_of(m[k], tsr_ratio_divisor(tsr_sqrt(v[k]), p->eps));
		scale = tsr_f32_from_bits(team_magnitudes<N, team>(m).largest);
		scale = put_scale(scales, tile / team, group_softsign::peak(scale),
				  group_softsign::e8m8_max(), inside && threadIdx.x % team == 0,
				  &events);
		unit = group_softsign::unit(scale);
		factor = group_softsign::factor(scale);
#pragma unroll 4
		for (int k = 0; k < N; k++)
			code[k] = (int8_t)group_softsign::code(m[k] * unit, factor);
		if (inside)
			store_tile<int8_t, N>(part->plane[0], tile, code);
		if (part->scale == TSR_SCALE_F16 && p->step.report) {
			struct tsr_encode_report *r = &p->step.report->encode[TSR_PART_MOMENTUM];

			tsr_add_count(&r->scale_underflow, events.underflow);
			tsr_add_count(&r->scale_overflow, events.overflow);
		}
	}

	/* As encode_log() of gpu_log8.cu. */
	template <int N>
	static __device__ __forceinline__ void store_roots(const struct pair_args *p, uint64_t tile,
							   bool inside, const float *v)
	{
		const struct step_part *part = &p->step.part[TSR_PART_VARIANCE];
		const int team = group / N;
		const struct magnitudes mag = team_magnitudes<N, team>(v);
		uint32_t stored = mag.largest > TSR_F32_INF
					  ? TSR_F28_MAX
					  : tsr_f28_from_root(
						    tsr_sqrt(tsr_f32_from_bits(mag.largest)));
		uint8_t code[N];

		stored |= tsr_log_range(p->variance.bound, tsr_f28_scale(stored),
					tsr_sqrt(tsr_f32_from_bits(mag.least)));
#pragma unroll 4
		for (int k = 0; k < N; k++)
			code[k] = (uint8_t)root_code(p, tsr_sqrt(v[k]), stored);
		if (inside && threadIdx.x % team == 0)
			((uint32_t *)part->plane[1])[tile / team] = stored;
		if (inside)
			store_tile<uint8_t, N>(part->plane[0], tile, code);
	}

	template <int N>
	static __device__ __forceinline__ void store(const struct pair_args *p, uint64_t tile,
						     bool inside, float *m, const float *v)
	{
		store_ratios<N>(p, tile, inside, m, v);
		store_roots<N>(p, tile, inside, v);
	}
};

/* --- Codes that are tables: COAT's and bitsandbytes' ------------------------------------------- */

/* The codecs of a pair: those of @format, for momenta and for variances, in groups of @GROUP. */
template <class format, int GROUP> struct exact_coded {
	static const int group = GROUP;

	static __device__ __forceinline__ struct tsr_table_rule rule_of(unsigned part)
	{
		return format::rule(part == TSR_PART_VARIANCE);
	}
	static __device__ __forceinline__ struct tsr_gpu_tables tables_of(const struct pair_args *p,
									  unsigned part)
	{
		return part == TSR_PART_VARIANCE ? p->variance : p->momentum;
	}
	/* The row of group @g, as it is stored. */
	static __device__ __forceinline__ uint32_t stored_row(const struct pair_args *p,
							      unsigned part, uint64_t g)
	{
		const uint8_t *expand = (const uint8_t *)p->step.part[part].plane[2];

		return rule_of(part).expanded ? expand[g] : rule_of(part).row;
	}

	template <int N>
	static __device__ __forceinline__ void load_part(const struct pair_args *p, unsigned part,
							 uint64_t tile, float *x)
	{
		const struct step_part *planes = &p->step.part[part];
		const uint64_t g = tile / (group / N);
		const struct tsr_table_row *row = &tables_of(p, part).row[stored_row(p, part, g)];
		uint8_t code[N];

		load_tile<uint8_t, N>(planes->plane[0], tile, code);
#pragma unroll 4
		for (int k = 0; k < N; k++)
			x[k] = decode_one(rule_of(part), row, ((const float *)planes->plane[1])[g],
					  code[k]);
	}
	template <int N>
	static __device__ __forceinline__ void load(const struct pair_args *p, uint64_t tile,
						    float *m, float *v)
	{
		load_part<N>(p, TSR_PART_MOMENTUM, tile, m);
		load_part<N>(p, TSR_PART_VARIANCE, tile, v);
	}

	/* As begin_group() and encode_one() of the codec's kernels. */
	template <int N>
	static __device__ __forceinline__ void store_part(const struct pair_args *p, unsigned part,
							  uint64_t tile, bool inside,
							  const float *x)
	{
		const struct step_part *planes = &p->step.part[part];
		const struct tsr_gpu_tables tables = tables_of(p, part);
		const struct magnitudes mag = team_magnitudes<N, group / N>(x);
		const float absmax = tsr_f32_from_bits(mag.largest);
		const float scale = tsr_table_scale(rule_of(part), absmax);
		uint32_t row = rule_of(part).row;
		struct coded_group g;
		uint8_t code[N];

		if (rule_of(part).expanded)
			row = tsr_table_expand(tables.bound, absmax, tsr_f32_from_bits(mag.least));
		g = coded_group_of(rule_of(part), tables, row, scale);
#pragma unroll 4
		for (int k = 0; k < N; k++)
			code[k] = encode_one(rule_of(part), &g, x[k]);
		if (!inside)
			return;
		store_tile<uint8_t, N>(planes->plane[0], tile, code);
		if (threadIdx.x % (group / N) != 0)
			return;
		((float *)planes->plane[1])[tile / (group / N)] = scale;
		if (rule_of(part).expanded)
			((uint8_t *)planes->plane[2])[tile / (group / N)] = (uint8_t)row;
	}
	template <int N>
	static __device__ __forceinline__ void store(const struct pair_args *p, uint64_t tile,
						     bool inside, const float *m, const float *v)
	{
		store_part<N>(p, TSR_PART_MOMENTUM, tile, inside, m);
		store_part<N>(p, TSR_PART_VARIANCE, tile, inside, v);
	}
};

struct coat_format {
	static __device__ __forceinline__ struct tsr_table_rule rule(bool variance)
	{
		return tsr_e4m3x_rule(variance);
	}
};

struct dynamic_format {
	static __device__ __forceinline__ struct tsr_table_rule rule(bool variance)
	{
		return tsr_dynamic_rule(variance);
	}
};

/* --- Any elements ------------------------------------------------------------------------------ */

/* A step, by all threads of a warp.  Loops are unrolled a little: a lone slow warp waits for itself. */
template <class pair, int N>
static __device__ __noinline__ void pair_step(const struct pair_args *p, uint64_t tile, bool inside)
{
	const struct step_args *a = &p->step;
	float g[N] = {}, w[N] = {}, m[N] = {}, v[N] = {};
	unsigned nonfinite = 0, overflow = 0;

	if (inside) {
		load_gradients<N>(a, tile, g);
		nonfinite = count_nonfinite<N>(g);
		load_weights<N>(a, tile, w);
		pair::template load<N>(p, tile, m, v);
	}
#pragma unroll 4
	for (int k = 0; k < N; k++) {
		const struct tsr_step_values x = run_one(&a->scalars, a->rule, g[k],
							 { w[k], m[k], v[k] });

		w[k] = x.weight;
		m[k] = x.momentum;
		v[k] = x.variance;
	}
	if (inside)
		overflow = store_weights<N>(a, tile, w);
	pair::template store<N>(p, tile, inside, m, v);
	if (a->report) {
		tsr_add_count(&a->report->nonfinite_grad, nonfinite);
		tsr_add_count(&a->report->encode[TSR_PART_WEIGHT].narrow_overflow, overflow);
	}
}

#endif
