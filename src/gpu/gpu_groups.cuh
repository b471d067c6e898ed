/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs whose elements share what is stored of their group, for kernels.  Each is a class of the same
 * shape, for the kernels of gpu_groups.cu and for the steps that one kernel does:
 *
 * load() is what is stored of group @g, and decode() makes N elements of their codes with it.
 * begin() makes of the magnitudes in a group what encode() takes to make codes of N elements, and stores
 * of it what is stored, in the thread that is to.
 *
 * This header has what they share and the codecs whose codes are formulas; gpu_tables.cuh has those
 * whose codes are tables, gpu_learned.cuh those that are learned.
 */
#ifndef TSR_GPU_GROUPED_CUH
#define TSR_GPU_GROUPED_CUH

#include "codec/group_math.h"
#include "gpu/cuda.h"
#include "gpu/shortcut.cuh"
#include "gpu/vector.cuh"
#include "tersor/codec.h"

/* --- What codecs share ----------------------------------------------------------------------- */

/* What the magnitudes in a group range over, as bits, which are ordered like them; a NaN is larger. */
struct magnitudes {
	uint32_t largest,
		least; /* the least one is of those that are not 0, less 1 until they are joined */
};

static __device__ __forceinline__ uint32_t magnitude(float x)
{
	return tsr_bits_from_f32(x) & TSR_F32_MAG;
}

struct no_codebook {
};

/* What is so unless a codec says something else. */
struct group_codec {
	static const unsigned usual =
		0; /* kernels of its own have groups of this size and of twice that */
	static const unsigned packed_bits =
		0; /* of a code, 32 of which are packed in as many words */
	static const bool has_codes = true;
	static const bool has_rms = false; /* scales are of the root mean square, not of the peak */
	typedef no_codebook codebook;
};

/* --- Scales ---------------------------------------------------------------------------------- */

/* What happened to the scales that a thread stored. */
struct scale_events {
	unsigned underflow, overflow;
};

/*
 * Store the scale of group @g, if this thread is the one to do it, and return what the encoder
 * divides by: e8m8 divides by what is stored; f16 is FlashOptim's, which rounds only what it stores.
 */
static __device__ __forceinline__ float put_scale(const struct coded_planes &p, uint64_t g,
						  float scale, uint32_t e8m8_max, bool stores,
						  struct scale_events *events)
{
	const uint32_t entry = tsr_scale_entry(p.scale, scale, e8m8_max);

	if (stores)
		tsr_scale_put(p.scale, p.plane[1], g, entry);
	if (p.scale != TSR_SCALE_E8M8 && p.scale != TSR_SCALE_F32)
		events->overflow += stores && tsr_scale_overflows(p.scale, scale, entry);
	if (p.scale != TSR_SCALE_F16)
		return tsr_scale_value(p.scale, entry);
	events->underflow += stores && entry == 0 && scale > 0.0f;
	return tsr_f16_divisor(scale);
}

/* --- Formulas -------------------------------------------------------------------------------- */

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

/* The formulas of group_math.h for a codec, and what a code stands for. */
struct group_scale {
	float unit, factor;
};

#define DEFINE_FORMULAS(id, meaning) \
	struct group_##id { \
		static __device__ __forceinline__ uint32_t e8m8_max(void) \
		{ \
			return tsr_##id##_e8m8_max(); \
		} \
		static __device__ __forceinline__ float peak(float absmax) \
		{ \
			return tsr_##id##_peak(absmax); \
		} \
		static __device__ __forceinline__ struct group_scale by(float scale) \
		{ \
			return { tsr_##id##_unit(scale), tsr_##id##_factor(scale) }; \
		} \
		static __device__ __forceinline__ int32_t least(enum tsr_scale format, \
								float scale) \
		{ \
			return format == TSR_SCALE_F16 ? 0 : tsr_##id##_least(scale); \
		} \
		static __device__ __forceinline__ int32_t code(float x, struct group_scale by, \
							       int32_t least) \
		{ \
			const int32_t code = tsr_##id##_code_in(tsr_##id##_bounds(), x * by.unit, \
								by.factor); \
\
			return tsr_##id##_positive(code, x, least); \
		} \
		static __device__ __forceinline__ float value(float code, float scale) \
		{ \
			return meaning; \
		} \
	};

DEFINE_FORMULAS(softsign, tsr_softsign_ratio(code) * scale)
DEFINE_FORMULAS(linear, tsr_linear_value(code, scale))
DEFINE_FORMULAS(sqrt, tsr_sqrt_value(code, scale))
DEFINE_FORMULAS(ulinear, tsr_ulinear_value(code, scale))

/* --- Codecs ---------------------------------------------------------------------------------- */

template <class formulas, typename code> struct grouped : group_codec {
	typedef formulas group;
	typedef code code_type;
	typedef uint32_t stored;
	static const unsigned usual = TSR_GROUP_DEFAULT;

	/* What a thread encodes of a group of a usual size: as much as shares what the group costs. */
	static __host__ __device__ constexpr int elements(unsigned)
	{
		return 16;
	}

	static __device__ __forceinline__ stored load(const struct coded_planes &p, uint64_t g)
	{
		return tsr_scale_get(p.scale, p.plane[1], g);
	}
	template <int N>
	static __device__ __forceinline__ void decode(const struct coded_planes &p, stored entry,
						      const code_type *in, float *x)
	{
		const float scale = tsr_scale_value(p.scale, entry);

#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] = group::value((float)(int32_t)in[k], scale);
		if ((tsr_bits_from_f32(scale) & TSR_F32_INF) == TSR_F32_INF) {
#pragma unroll
			for (int k = 0; k < N; k++)
				x[k] = with_cpu_nan(x[k], scale);
		}
	}

	struct coder {
		struct group_scale by;
		int32_t least;
	};

	static __device__ __forceinline__ struct coder begin(const struct coded_planes &p,
							     struct magnitudes m, uint64_t g,
							     bool stores,
							     struct scale_events *events)
	{
		const float scale = put_scale(p, g, group::peak(tsr_f32_from_bits(m.largest)),
					      group::e8m8_max(), stores, events);

		return { group::by(scale), group::least(p.scale, scale) };
	}
	template <int N>
	static __device__ __forceinline__ void encode(const struct coded_planes &,
						      const struct coder &c, const float *x,
						      code_type *out)
	{
#pragma unroll
		for (int k = 0; k < N; k++)
			out[k] = (code_type)group::code(x[k], c.by, c.least);
	}
};

/* --- Teams: threads next to each other that have a group, N consecutive elements each ---------- */

/* The magnitudes of all threads of a team, for each of them. */
static __device__ __forceinline__ struct magnitudes join_magnitudes(struct magnitudes m,
								    unsigned nthreads)
{
	if (nthreads == 32)
		return { __reduce_max_sync(TSR_WHOLE_WARP, m.largest),
			 __reduce_min_sync(TSR_WHOLE_WARP, m.least) + 1 };
#pragma unroll
	for (unsigned distance = 1; distance < nthreads; distance *= 2) {
		m.largest = ::max(m.largest, __shfl_xor_sync(TSR_WHOLE_WARP, m.largest, distance));
		m.least = ::min(m.least, __shfl_xor_sync(TSR_WHOLE_WARP, m.least, distance));
	}
	m.least++;
	return m;
}

template <int N> static __device__ __forceinline__ struct magnitudes magnitudes_of(const float *x)
{
	struct magnitudes m = { 0, UINT32_MAX };

#pragma unroll
	for (int k = 0; k < N; k++) {
		m.largest = ::max(m.largest, magnitude(x[k]));
		m.least = ::min(m.least, magnitude(x[k]) - 1);
	}
	return m;
}

static __device__ __forceinline__ void add_events(struct tsr_encode_report *report,
						  enum tsr_scale format, struct scale_events events)
{
	if ((format == TSR_SCALE_F16 || format == TSR_SCALE_E5M3) && report) {
		tsr_add_count(&report->scale_underflow, events.underflow);
		tsr_add_count(&report->scale_overflow, events.overflow);
	}
}

/*
 * Tile number @tile, N elements in groups of GROUP, of planes.  store() is called by all threads of a warp,
 * as those of a group talk to each other, and stores if @inside.
 */
template <class codec, unsigned GROUP = codec::usual> struct group_tiles {
	typedef typename codec::code_type code_type;
	static const int count = 1, tile = 16;

	template <int N>
	static __device__ __forceinline__ void load(const struct coded_planes &p, uint64_t tile,
						    float *x)
	{
		const typename codec::stored stored = codec::load(p, tile / (GROUP / N));
		code_type code[N];

		load_tile<code_type, N>(p.plane[0], tile, code);
		codec::template decode<N>(p, stored, code, x);
	}
	template <int N>
	static __device__ __forceinline__ void store(const struct coded_planes &p, uint64_t tile,
						     bool inside, const float *x,
						     struct tsr_encode_report *report)
	{
		const int team = GROUP / N;
		const bool stores = inside && threadIdx.x % team == 0;
		const struct magnitudes m = join_magnitudes(magnitudes_of<N>(x), team);
		struct scale_events events = { 0, 0 };
		const typename codec::coder coder = codec::begin(p, m, tile / team, stores,
								 &events);
		code_type code[N];

		codec::template encode<N>(p, coder, x, code);
		if (inside)
			store_tile<code_type, N>(p.plane[0], tile, code);
		add_events(report, p.scale, events);
	}
};

/* --- Groups of any size ---------------------------------------------------------------------- */

/* Threads of a warp that have a group; each has every @nthreads-th element. */
struct team {
	uint64_t group; /* index of the group */
	uint64_t first; /* its first element */
	uint32_t count; /* its elements, 0 behind the end */
	uint32_t thread, nthreads;
};

/* How elements are put into groups: as struct tsr_coding says, with the size that groups really have. */
struct groups {
	uint32_t size;
	uint32_t row, in_row; /* elements and groups of a row; or 0 */
	unsigned log_team; /* of the threads that have one */
};

static __device__ __forceinline__ struct team my_team(uint64_t n, struct groups groups)
{
	const uint64_t thread = tsr_first_vector(1);
	uint64_t end = n;
	struct team t;

	t.group = thread >> groups.log_team;
	if (groups.row) {
		const uint64_t row = t.group / groups.in_row * groups.row;

		t.first = row + t.group % groups.in_row * groups.size;
		end = n - row < groups.row || row > n ? n : row + groups.row;
	} else {
		t.first = t.group * groups.size;
	}
	t.count = t.first >= end		? 0
		  : end - t.first < groups.size ? (uint32_t)(end - t.first)
						: groups.size;
	t.nthreads = 1u << groups.log_team;
	t.thread = threadIdx.x & (t.nthreads - 1);
	return t;
}

static inline struct groups groups_of(const struct tsr_coding *coding)
{
	const uint32_t size = tsr_coding_group(coding);
	unsigned log_team = 0;

	while (log_team < 5 && (1u << log_team) < size)
		log_team++;
	return { size, coding->row, tsr_coding_row_groups(coding), log_team };
}

#endif
