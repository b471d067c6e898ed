/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs whose elements share scales in groups. */
#include "gpu/cuda.h"
#include "gpu/shortcut.cuh"
#include "gpu/vector.cuh"
#include "tersor/math.h"

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

static __device__ __forceinline__ float quiet(float nan)
{
	return tsr_f32_from_bits(tsr_bits_from_f32(nan) | 0x400000u);
}

/* A decoded value, with the NaN that a CPU makes of this scale. */
static __device__ __forceinline__ float with_cpu_nan(float value, float scale)
{
	if (is_nan(scale))
		return quiet(scale);
	return is_nan(value) ? tsr_f32_from_bits(CPU_NAN) : value;
}

/*
 * As in src/codec/simd/grouped.c: peak, unit, factor and code of an element; and its value.
 *
 * ordinary_code() is the same code for a group whose largest magnitude is below 2^126: there, no
 * code needs to be clamped.
 */
struct ordinary_group {
	float unit, factor;
};

struct softsign {
	typedef int8_t code_type;
	static const uint32_t e8m8_max = TSR_E8M8_MAX;

	static __device__ __forceinline__ float peak(float absmax)
	{
		return absmax;
	}
	static __device__ __forceinline__ float unit(float scale)
	{
		return tsr_group_unit(scale);
	}
	static __device__ __forceinline__ float factor(float scale)
	{
		return scale * tsr_group_unit(scale);
	}
	static __device__ __forceinline__ int32_t code(float m, float factor)
	{
		return tsr_softsign_code(m, factor);
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
	static __device__ __forceinline__ float value(int32_t code, float scale)
	{
		return scale * tsr_softsign_ratio((float)code);
	}
};

struct linear {
	typedef int8_t code_type;
	static const uint32_t e8m8_max = TSR_E8M8_MAX;

	static __device__ __forceinline__ float peak(float absmax)
	{
		return absmax;
	}
	static __device__ __forceinline__ float unit(float scale)
	{
		return tsr_group_unit(scale);
	}
	static __device__ __forceinline__ float factor(float scale)
	{
		return tsr_inverse_scale(127.0f, scale * tsr_group_unit(scale));
	}
	static __device__ __forceinline__ int32_t code(float m, float factor)
	{
		return tsr_linear_code(m, factor);
	}
	static __device__ __forceinline__ struct ordinary_group ordinary(float absmax, float scale)
	{
		const struct ordinary_group g = { unit(scale), factor(scale) };

		(void)absmax;
		return g;
	}
	static __device__ __forceinline__ int32_t ordinary_code(float m, struct ordinary_group g)
	{
		return tsr_round_half_away_i32(m * g.unit * g.factor);
	}
	static __device__ __forceinline__ float value(int32_t code, float scale)
	{
		return tsr_linear_value(code, scale);
	}
};

struct root {
	typedef uint8_t code_type;
	static const uint32_t e8m8_max = TSR_E8M8_SQRT_MAX;

	static __device__ __forceinline__ float peak(float absmax)
	{
		return is_nan(absmax) ? quiet(absmax) : __fsqrt_rn(absmax);
	}
	static __device__ __forceinline__ float unit(float scale)
	{
		(void)scale;
		return 1.0f;
	}
	static __device__ __forceinline__ float factor(float scale)
	{
		return tsr_inverse_scale(255.0f, scale);
	}
	static __device__ __forceinline__ int32_t code(float v, float factor)
	{
		return tsr_sqrt_code(__fsqrt_rn(v), factor);
	}
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
	static __device__ __forceinline__ float value(int32_t code, float scale)
	{
		return tsr_sqrt_value(code, scale);
	}
};

struct ulinear {
	typedef uint8_t code_type;
	static const uint32_t e8m8_max = TSR_E8M8_MAX;

	static __device__ __forceinline__ float peak(float absmax)
	{
		return absmax;
	}
	static __device__ __forceinline__ float unit(float scale)
	{
		return tsr_group_unit(scale);
	}
	static __device__ __forceinline__ float factor(float scale)
	{
		return tsr_inverse_scale(255.0f, scale * tsr_group_unit(scale));
	}
	static __device__ __forceinline__ int32_t code(float v, float factor)
	{
		return tsr_ulinear_code(v, factor);
	}
	static __device__ __forceinline__ struct ordinary_group ordinary(float absmax, float scale)
	{
		const struct ordinary_group g = { unit(scale), factor(scale) };

		(void)absmax;
		return g;
	}
	static __device__ __forceinline__ int32_t ordinary_code(float v, struct ordinary_group g)
	{
		return (int32_t)fmaxf(v * g.unit * g.factor + 0.5f, 0.0f);
	}
	static __device__ __forceinline__ float value(int32_t code, float scale)
	{
		return tsr_ulinear_value(code, scale);
	}
};

/* --- Groups of the default size: encoding ---------------------------------------------------- */

#define TILE 16 /* consecutive elements of a thread, so that what a group costs is shared by them */
#define TILE_TEAM (TSR_GROUP_DEFAULT / TILE)

/*
 * The largest magnitude of the group as bits, which are ordered like the values; a NaN is larger.
 * Floats are compared first, as one instruction takes their magnitudes; only for which NaN it is,
 * patterns are.
 */
static __device__ __forceinline__ float group_absmax(const float *x)
{
	float max = fabsf(x[0]);
	uint32_t bits = 0;

#pragma unroll
	for (int k = 1; k < TILE; k++)
		max = tsr_max_or_nan(max, fabsf(x[k]));
	max = tsr_max_or_nan(max, __shfl_xor_sync(TSR_WHOLE_WARP, max, 1));
	if (!__any_sync(TSR_WHOLE_WARP, is_nan(max)))
		return max;
	for (int k = 0; k < TILE; k++)
		bits = ::max(bits, tsr_bits_from_f32(x[k]) & TSR_F32_MAG);
	bits = ::max(bits, __shfl_xor_sync(TSR_WHOLE_WARP, bits, 1));
	return tsr_f32_from_bits(bits);
}

/*
 * A thread has TILE elements and TILE_TEAM threads have a group.  Whole groups only: @ntiles is a
 * multiple of TILE_TEAM.  4 bytes read, 1 + 2/32 written per element.  Threads read 16 bytes at a
 * distance of 64, so a sector is for two reads of a warp, and the first one leaves it in the cache.
 */
template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_groups(const float *x, uint64_t ntiles, typename codec::code_type *codes,
		      struct scale_plane plane, struct tsr_encode_report *report)
{
	const uint64_t tile = tsr_first_vector(1);
	const bool inside = tile < ntiles;
	struct scale_events events = { 0, 0 };
	struct tsr_vec<typename codec::code_type, TILE> out;
	float in[TILE] = {}, absmax, scale;

	if (inside) {
#pragma unroll
		for (int k = 0; k < TILE; k += 4)
			*(float4 *)&in[k] = *(const float4 *)(x + tile * TILE + k);
	}
	absmax = group_absmax(in);
	scale = put_scale(plane, tile / TILE_TEAM, codec::peak(absmax), codec::e8m8_max,
			  inside && threadIdx.x % TILE_TEAM == 0, &events);
	if (absmax < 0x1p126f) {
		const struct ordinary_group g = codec::ordinary(absmax, scale);

#pragma unroll
		for (int k = 0; k < TILE; k++)
			out.v[k] = (typename codec::code_type)codec::ordinary_code(in[k], g);
	} else {
		const float unit = codec::unit(scale), factor = codec::factor(scale);

#pragma unroll
		for (int k = 0; k < TILE; k++)
			out.v[k] = (typename codec::code_type)codec::code(in[k] * unit, factor);
	}
	if (inside)
		tsr_store(codes, tile, out);
	if (plane.format == TSR_SCALE_F16 && report) {
		tsr_add_count(&report->scale_underflow, events.underflow);
		tsr_add_count(&report->scale_overflow, events.overflow);
	}
}

/* --- Groups of the default size: decoding ---------------------------------------------------- */

#define W 4
#define TEAM (TSR_GROUP_DEFAULT / W)
#define EACH \
	2u /* vectors of a thread: there is little to read, so more of it is asked for at once */

/* How many vectors there are from @begin on; at most what fits. */
static __device__ __forceinline__ unsigned vectors_left(uint64_t nvectors, uint64_t begin)
{
	const uint64_t left = nvectors > begin ? nvectors - begin : 0;

	return left < UINT32_MAX ? (unsigned)left : UINT32_MAX;
}

/* 1 + 2/32 bytes read, 4 written per element. */
template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_groups(const typename codec::code_type *codes, const void *scales,
		      enum tsr_scale format, uint64_t nvectors, float *x)
{
	const uint64_t begin = tsr_first_vector(EACH);
	const unsigned left = vectors_left(nvectors, begin);
	struct tsr_vec<typename codec::code_type, W> in[EACH];
	uint32_t entry[EACH];

#pragma unroll
	for (unsigned u = 0; u < EACH; u++) {
		if (u * TSR_BLOCK < left) {
			in[u] = tsr_load<typename codec::code_type, W>(codes + begin * W,
								       u * TSR_BLOCK);
			entry[u] = load_scale(scales, format,
					      begin / TEAM + u * (TSR_BLOCK / TEAM));
		}
	}
#pragma unroll
	for (unsigned u = 0; u < EACH; u++) {
		const float scale = scale_value(entry[u], format);
		struct tsr_vec<float, W> out;

		if (u * TSR_BLOCK >= left)
			break;
#pragma unroll
		for (int k = 0; k < W; k++)
			out.v[k] = codec::value(in[u].v[k], scale);
		if ((tsr_bits_from_f32(scale) & TSR_F32_INF) == TSR_F32_INF) {
#pragma unroll
			for (int k = 0; k < W; k++)
				out.v[k] = with_cpu_nan(out.v[k], scale);
		}
		tsr_store(x + begin * W, u * TSR_BLOCK, out);
	}
}

/* --- Groups of any size, arrays of any alignment, the short group at the end ----------------- */

/*
 * 2^log_team threads to a group, at most a warp; each has every 2^log_team-th element.  The values
 * are read twice, the second time from the cache.
 */
struct team {
	uint64_t group; /* index of the group */
	uint64_t first; /* its first element */
	uint32_t count; /* its elements, 0 behind the end */
	uint32_t thread, nthreads;
};

static __device__ __forceinline__ struct team my_team(uint64_t n, uint32_t group, unsigned log_team)
{
	const uint64_t thread = tsr_first_vector(1);
	struct team t;

	t.group = thread >> log_team;
	t.first = t.group * group;
	t.count = t.first >= n ? 0 : n - t.first < group ? (uint32_t)(n - t.first) : group;
	t.nthreads = 1u << log_team;
	t.thread = threadIdx.x & (t.nthreads - 1);
	return t;
}

template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_any(const float *x, uint64_t n, uint32_t group, unsigned log_team,
		   typename codec::code_type *codes, struct scale_plane plane,
		   struct tsr_encode_report *report)
{
	const struct team t = my_team(n, group, log_team);
	struct scale_events events = { 0, 0 };
	uint32_t max = 0;
	float scale, unit, factor;

	for (uint32_t k = t.thread; k < t.count; k += t.nthreads)
		max = ::max(max, tsr_bits_from_f32(x[t.first + k]) & TSR_F32_MAG);
	for (uint32_t distance = t.nthreads / 2; distance; distance /= 2)
		max = ::max(max, __shfl_xor_sync(TSR_WHOLE_WARP, max, distance));
	scale = put_scale(plane, t.group, codec::peak(tsr_f32_from_bits(max)), codec::e8m8_max,
			  t.count && t.thread == 0, &events);
	unit = codec::unit(scale);
	factor = codec::factor(scale);
	for (uint32_t k = t.thread; k < t.count; k += t.nthreads)
		codes[t.first + k] = (typename codec::code_type)codec::code(x[t.first + k] * unit,
									    factor);
	if (plane.format == TSR_SCALE_F16 && report) {
		tsr_add_count(&report->scale_underflow, events.underflow);
		tsr_add_count(&report->scale_overflow, events.overflow);
	}
}

template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_any(const typename codec::code_type *codes, const void *scales,
		   enum tsr_scale format, uint64_t n, uint32_t group, unsigned log_team, float *x)
{
	const struct team t = my_team(n, group, log_team);
	float scale;

	if (!t.count)
		return;
	scale = scale_value(load_scale(scales, format, t.group), format);
	for (uint32_t k = t.thread; k < t.count; k += t.nthreads)
		x[t.first + k] = with_cpu_nan(codec::value(codes[t.first + k], scale), scale);
}

/* --- Launches -------------------------------------------------------------------------------- */

static unsigned log_team_of(uint32_t group)
{
	unsigned log_team = 0;

	while (log_team < 5 && (1u << log_team) < group)
		log_team++;
	return log_team;
}

static unsigned team_blocks(uint64_t n, uint32_t group, unsigned log_team)
{
	const uint64_t teams = n / group + (n % group != 0);
	const uint64_t threads = teams << log_team;

	return tsr_blocks(threads, 1);
}

/* Elements in whole groups that the kernels for the default size take. */
static uint64_t groups_part(const struct tsr_coding *coding, const void *x, const void *codes,
			    uint64_t n)
{
	const bool fits = coding->group == TSR_GROUP_DEFAULT && tsr_is_aligned(x, 16) &&
			  tsr_is_aligned(codes, TILE);

	return fits ? n - n % TSR_GROUP_DEFAULT : 0;
}

static uint64_t scale_size(enum tsr_scale format)
{
	return format == TSR_SCALE_F32 ? 4 : 2;
}

template <class codec>
static void run_encode(cudaStream_t stream, const struct tsr_coding *coding, const float *x,
		       uint64_t n, void *const plane[], struct tsr_encode_report *report)
{
	typename codec::code_type *codes = (typename codec::code_type *)plane[0];
	struct scale_plane scales = { plane[1], coding->scale };
	const uint64_t part = groups_part(coding, x, codes, n), rest = n - part;
	const unsigned log_team = log_team_of(coding->group);

	if (part)
		encode_groups<codec><<<tsr_blocks(part / TILE, 1), TSR_BLOCK, 0, stream>>>(
			x, part / TILE, codes, scales, report);
	scales.scales = (char *)plane[1] + part / coding->group * scale_size(coding->scale);
	if (rest)
		encode_any<codec>
			<<<team_blocks(rest, coding->group, log_team), TSR_BLOCK, 0, stream>>>(
				x + part, rest, coding->group, log_team, codes + part, scales,
				report);
}

template <class codec>
static void run_decode(cudaStream_t stream, const struct tsr_coding *coding,
		       const void *const plane[], uint64_t n, float *x)
{
	const typename codec::code_type *codes = (const typename codec::code_type *)plane[0];
	const uint64_t part = groups_part(coding, x, codes, n), rest = n - part;
	const char *rest_scales = (const char *)plane[1] +
				  part / coding->group * scale_size(coding->scale);
	const unsigned log_team = log_team_of(coding->group);

	if (part)
		decode_groups<codec><<<tsr_blocks(part / W, EACH), TSR_BLOCK, 0, stream>>>(
			codes, plane[1], coding->scale, part / W, x);
	if (rest)
		decode_any<codec>
			<<<team_blocks(rest, coding->group, log_team), TSR_BLOCK, 0, stream>>>(
				codes + part, rest_scales, coding->scale, rest, coding->group,
				log_team, x + part);
}

const struct tsr_gpu_codec tsr_gpu_grouped_codecs[] = {
	{ "softsign8", run_encode<softsign>, run_decode<softsign> },
	{ "linear8", run_encode<linear>, run_decode<linear> },
	{ "sqrt8", run_encode<root>, run_decode<root> },
	{ "ulinear8", run_encode<ulinear>, run_decode<ulinear> },
	{ NULL, NULL, NULL },
};
