/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs whose elements share scales in groups, for kernels. */
#ifndef TSR_GPU_GROUPED_CUH
#define TSR_GPU_GROUPED_CUH

#include "codec/group_math.h"
#include "gpu/shortcut.cuh"
#include "gpu/vector.cuh"
#include "tersor/codec.h"

/* --- Scales ---------------------------------------------------------------------------------- */

struct scale_plane {
	void *scales;
	enum tsr_scale format;
};

/* What happened to the scales that a thread stored. */
struct scale_events {
	unsigned underflow, overflow;
};

/*
 * Store the scale of group @g, if this thread is the one to do it, and return what the encoder
 * divides by: e8m8 divides by what is stored; f16 is FlashOptim's, which rounds only what it stores.
 */
static __device__ __forceinline__ float put_scale(struct scale_plane plane, uint64_t g, float scale,
						  uint32_t e8m8_max, bool stores,
						  struct scale_events *events)
{
	if (plane.format == TSR_SCALE_E8M8) {
		const uint32_t code = tsr_e8m8_from_f32(scale);
		const uint32_t capped = code < e8m8_max ? code : e8m8_max;

		if (stores)
			((uint16_t *)plane.scales)[g] = (uint16_t)capped;
		return tsr_f32_from_e8m8(capped);
	}
	if (plane.format == TSR_SCALE_F16) {
		const uint32_t narrow = tsr_f16_from_f32(scale);

		if (stores) {
			((uint16_t *)plane.scales)[g] = (uint16_t)narrow;
			events->underflow += narrow == 0 && scale > 0.0f;
			events->overflow += narrow >= 0x7c00;
		}
		return tsr_f16_divisor(scale);
	}
	if (stores)
		((float *)plane.scales)[g] = scale;
	return scale;
}

/* The stored entry of group @g, and what it stands for. */
static __device__ __forceinline__ uint32_t load_scale(const void *scales, enum tsr_scale format,
						      uint64_t g)
{
	return format == TSR_SCALE_F32 ? ((const uint32_t *)scales)[g]
				       : ((const uint16_t *)scales)[g];
}

static __device__ __forceinline__ float scale_value(uint32_t entry, enum tsr_scale format)
{
	if (format == TSR_SCALE_F32)
		return tsr_f32_from_bits(entry);
	return format == TSR_SCALE_E8M8 ? tsr_f32_from_e8m8(entry) : tsr_f32_from_f16(entry);
}

/* --- Codecs ---------------------------------------------------------------------------------- */

/*
 * Below 0.5 a quotient would be rounded to the code 0: this is the least quotient of positive elements,
 * in groups whose tsr_least_..._code() is 1.
 */
static __device__ __forceinline__ float flash_floor(enum tsr_scale format)
{
	return format == TSR_SCALE_F16 ? 0.0f : 0.5f;
}

/*
 * GPUs make one NaN of all.  What CPUs give: the NaN that went in, quiet; and for an infinity times
 * zero one of their own.
 */
#ifdef __x86_64__
#define CPU_NAN 0xffc00000u
#else
#define CPU_NAN 0x7fc00000u
#endif

static __device__ __forceinline__ bool is_nan(float x)
{
	return (tsr_bits_from_f32(x) & TSR_F32_MAG) > TSR_F32_INF;
}

/* A decoded value, with the NaN that a CPU makes of this scale. */
static __device__ __forceinline__ float with_cpu_nan(float value, float scale)
{
	if (is_nan(scale))
		return tsr_f32_from_bits(tsr_bits_from_f32(scale) | 0x400000u);
	return is_nan(value) ? tsr_f32_from_bits(CPU_NAN) : value;
}

/*
 * The formulas of group_math.h for a codec, and its shortcuts:
 *
 * ordinary_code() is code() for a group whose largest magnitude is below 2^126, with what ordinary()
 * made of its scale: no code needs to be clamped.
 * flash_code() is that for a group of step_flash.cuh, whose unit is 1, with what flash_factor() made
 * of its scale; the lowest 8 bits count, and with takes_roots the argument is the root of an element.
 * Variances are positive there: their code is that of tsr_positive_code(), if flash_floor() is given.
 * flash_least() is how large such a group of variances has to be.
 */
struct ordinary_group {
	float unit, factor;
};

#define DEFINE_FORMULAS(id) \
	struct id##_formulas { \
		static const bool takes_roots = false; \
\
		static __device__ __forceinline__ uint32_t e8m8_max(void) \
		{ \
			return tsr_##id##_e8m8_max(); \
		} \
		static __device__ __forceinline__ float peak(float absmax) \
		{ \
			return tsr_##id##_peak(absmax); \
		} \
		static __device__ __forceinline__ float unit(float scale) \
		{ \
			return tsr_##id##_unit(scale); \
		} \
		static __device__ __forceinline__ float factor(float scale) \
		{ \
			return tsr_##id##_factor(scale); \
		} \
		static __device__ __forceinline__ int32_t code(float x, float factor) \
		{ \
			return tsr_##id##_code_in(tsr_##id##_bounds(), x, factor); \
		} \
		static __device__ __forceinline__ int32_t least(enum tsr_scale format, \
								float scale) \
		{ \
			return format == TSR_SCALE_F16 ? 0 : tsr_##id##_least(scale); \
		} \
		static __device__ __forceinline__ int32_t positive(int32_t code, float x, \
								   int32_t least) \
		{ \
			return tsr_##id##_positive(code, x, least); \
		} \
		static __device__ __forceinline__ float value(float code, float scale) \
		{ \
			return tsr_##id##_value(code, scale); \
		} \
		static __device__ __forceinline__ struct ordinary_group ordinary(float absmax, \
										 float scale) \
		{ \
			const struct ordinary_group g = { unit(scale), factor(scale) }; \
\
			(void)absmax; \
			return g; \
		} \
	};

DEFINE_FORMULAS(softsign)
DEFINE_FORMULAS(linear)
DEFINE_FORMULAS(sqrt)
DEFINE_FORMULAS(ulinear)

struct group_softsign : softsign_formulas {
	static __device__ __forceinline__ float value(float code, float scale)
	{
		return scale * tsr_softsign_ratio(code);
	}
	/* Any positive factor will do for a group of zeros. */
	static __device__ __forceinline__ struct ordinary_group ordinary(float absmax, float scale)
	{
		const struct ordinary_group g = { unit(scale), fmaxf(factor(scale), 0x1p-100f) };

		(void)absmax;
		return g;
	}
	static __device__ __forceinline__ int32_t ordinary_code(float m, struct ordinary_group g)
	{
		return tsr_softsign_code_ordinary(m * g.unit, g.factor);
	}
	static __device__ __forceinline__ float flash_factor(float scale)
	{
		return scale;
	}
	static __device__ __forceinline__ uint32_t flash_code(struct tsr_masks masks, float m,
							      float scale, float)
	{
		return (uint32_t)tsr_softsign_code_ordinary(m, scale, masks.sign);
	}
};

struct group_linear : linear_formulas {
	static __device__ __forceinline__ int32_t ordinary_code(float m, struct ordinary_group g)
	{
		return tsr_round_half_away_i32(m * g.unit * g.factor);
	}
	static __device__ __forceinline__ float flash_factor(float scale)
	{
		return tsr_quotient_ordinary(127.0f, scale);
	}
	static __device__ __forceinline__ uint32_t flash_code(struct tsr_masks masks, float m,
							      float factor, float)
	{
		const float t = m * factor;
		const uint32_t sign = tsr_bits_from_f32(t) & masks.sign;

		return (uint32_t)(int32_t)(t + tsr_f32_from_bits(sign | 0x3f000000u));
	}
};

struct group_sqrt : sqrt_formulas {
	static const bool takes_roots = true;

	/*
	 * The unit, a power of 4, brings tiny groups up.  What is then below 2^-100 has code 0, and
	 * so has what is negative: they become 2^-100.
	 */
	static __device__ __forceinline__ struct ordinary_group ordinary(float absmax, float scale)
	{
		const bool tiny = absmax < 0x1p-80f;
		const struct ordinary_group g = { tiny ? 0x1p80f : 1.0f,
						  factor(scale) * (tiny ? 0x1p-40f : 1.0f) };

		return g;
	}
	static __device__ __forceinline__ int32_t ordinary_code(float v, struct ordinary_group g)
	{
		const float root = tsr_root_ordinary(fmaxf(v * g.unit, 0x1p-100f));

		return (int32_t)(root * g.factor + 0.5f);
	}
	static __device__ __forceinline__ float flash_least(void)
	{
		return 0x1p-80f;
	}
	static __device__ __forceinline__ float flash_factor(float scale)
	{
		return tsr_quotient_ordinary(255.0f, scale);
	}
	static __device__ __forceinline__ uint32_t flash_code(struct tsr_masks, float root,
							      float factor, float floor)
	{
		return (uint32_t)(int32_t)(fmaxf(root * factor, floor) + 0.5f);
	}
};

struct group_ulinear : ulinear_formulas {
	static __device__ __forceinline__ int32_t ordinary_code(float v, struct ordinary_group g)
	{
		return (int32_t)fmaxf(v * g.unit * g.factor + 0.5f, 0.0f);
	}
	static __device__ __forceinline__ float flash_least(void)
	{
		return 0x1p-60f;
	}
	static __device__ __forceinline__ float flash_factor(float scale)
	{
		return tsr_quotient_ordinary(255.0f, scale);
	}
	static __device__ __forceinline__ uint32_t flash_code(struct tsr_masks, float v,
							      float factor, float floor)
	{
		return (uint32_t)(int32_t)(fmaxf(v * factor, floor) + 0.5f);
	}
};

template <class group, typename code> struct grouped : group {
	typedef code code_type;
};

/* --- Groups of a known size: N consecutive elements of a thread, its tile ---------------------- */

/* How many threads, next to each other in a warp, have a group. */
static __host__ __device__ constexpr unsigned tsr_team(int n, unsigned group = TSR_GROUP_DEFAULT)
{
	return group / (unsigned)n;
}

/* The largest of what the threads of a team have, for each of them; NaN if any is. */
template <int N, unsigned GROUP = TSR_GROUP_DEFAULT>
static __device__ __forceinline__ float team_max(float max)
{
#pragma unroll
	for (unsigned distance = 1; distance < tsr_team(N, GROUP); distance *= 2)
		max = tsr_max_or_nan(max, __shfl_xor_sync(TSR_WHOLE_WARP, max, distance));
	return max;
}

/*
 * The largest magnitude of the group as bits, which are ordered like the values; a NaN is larger.
 * Floats are compared first, as one instruction takes their magnitudes; only for which NaN it is,
 * patterns are.
 */
template <int N, unsigned GROUP>
static __device__ __forceinline__ float group_absmax(const float *x)
{
	float max = fabsf(x[0]);
	uint32_t bits = 0;

#pragma unroll
	for (int k = 1; k < N; k++)
		max = tsr_max_or_nan(max, fabsf(x[k]));
	max = team_max<N, GROUP>(max);
	if (!__any_sync(TSR_WHOLE_WARP, is_nan(max)))
		return max;
	for (int k = 0; k < N; k++)
		bits = ::max(bits, tsr_bits_from_f32(x[k]) & TSR_F32_MAG);
	for (unsigned distance = 1; distance < tsr_team(N, GROUP); distance *= 2)
		bits = ::max(bits, __shfl_xor_sync(TSR_WHOLE_WARP, bits, distance));
	return tsr_f32_from_bits(bits);
}

/* Codes of a tile; the first thread of a team stores the scale.  All threads of a warp call it. */
template <class codec, int N, unsigned GROUP = TSR_GROUP_DEFAULT>
static __device__ __forceinline__ struct tsr_vec<typename codec::code_type, N> encode_tile(
	const float *in, uint64_t tile, bool inside, struct scale_plane plane,
	struct scale_events *events) {
	const float absmax = group_absmax<N, GROUP>(in);
	const bool stores = inside && threadIdx.x % tsr_team(N, GROUP) == 0;
	const float scale = put_scale(plane, tile / tsr_team(N, GROUP), codec::peak(absmax),
				      codec::e8m8_max(), stores, events);
	const int32_t least = codec::least(plane.format, scale);
	struct tsr_vec<typename codec::code_type, N> out;

	if (absmax < 0x1p126f) {
		const struct ordinary_group g = codec::ordinary(absmax, scale);

#pragma unroll
		for (int k = 0; k < N; k++)
			out.v[k] = (typename codec::code_type)codec::positive(
				codec::ordinary_code(in[k], g), in[k], least);
	} else {
		const float unit = codec::unit(scale), factor = codec::factor(scale);

#pragma unroll
		for (int k = 0; k < N; k++)
			out.v[k] = (typename codec::code_type)codec::positive(
				codec::code(in[k] * unit, factor), in[k], least);
	}
	return out;
}

/*
 * The same from roots of finite numbers of at least 2^-100, for codecs that take them: the largest
 * root is that of the largest number, and no code needs to be clamped.
 */
template <class codec, int N>
static __device__ __forceinline__ struct tsr_vec<typename codec::code_type, N> encode_roots(
	const float *in, uint64_t tile, bool inside, struct scale_plane plane,
	struct scale_events *events) {
	struct tsr_vec<typename codec::code_type, N> out;
	const bool stores = inside && threadIdx.x % tsr_team(N) == 0;
	const float floor = flash_floor(plane.format);
	float peak = in[0], factor;

#pragma unroll
	for (int k = 1; k < N; k++)
		peak = fmaxf(peak, in[k]);
	peak = team_max<N>(peak);
	factor = codec::factor(
		put_scale(plane, tile / tsr_team(N), peak, codec::e8m8_max(), stores, events));
#pragma unroll
	for (int k = 0; k < N; k++)
		out.v[k] = (typename codec::code_type)(int32_t)(fmaxf(in[k] * factor, floor) +
								0.5f);
	return out;
}

#endif
