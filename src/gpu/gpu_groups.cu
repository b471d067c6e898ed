/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of codecs whose elements share scales in groups. */
#include "gpu/cuda.h"
#include "gpu/gpu_groups.cuh"
#include "gpu/gpu_teams.cuh"

/* --- Groups of the usual sizes: encoding ----------------------------------------------------- */

#define TILE 16 /* elements of a thread, which share what a group costs */

/*
 * A team of threads has a group.  Whole groups only: @ntiles is a multiple of the team.  4 bytes
 * read, 1 + 2/32 written per element.  Threads read 16 bytes at a distance of 64, so a sector is for
 * two reads of a warp, and the first one leaves it in the cache.
 */
template <class codec, unsigned GROUP>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_groups(const float *x, uint64_t ntiles, typename codec::code_type *codes,
		      struct scale_plane plane, struct tsr_encode_report *report)
{
	const uint64_t tile = tsr_first_vector(1);
	const bool inside = tile < ntiles;
	struct scale_events events = { 0, 0 };
	struct tsr_vec<typename codec::code_type, TILE> out;
	float in[TILE] = {};

	if (inside) {
#pragma unroll
		for (int k = 0; k < TILE; k += 4)
			*(float4 *)&in[k] = *(const float4 *)(x + tile * TILE + k);
	}
	out = encode_tile<codec, TILE, GROUP>(in, tile, inside, plane, &events);
	if (inside)
		tsr_store(codes, tile, out);
	if (plane.format == TSR_SCALE_F16 && report) {
		tsr_add_count(&report->scale_underflow, events.underflow);
		tsr_add_count(&report->scale_overflow, events.overflow);
	}
}

/* --- Groups of the usual sizes: decoding ----------------------------------------------------- */

#define W 4
#define EACH 2u /* vectors of a thread: each load is small, so several are issued at once */

/* How many vectors there are from @begin on; at most what fits. */
static __device__ __forceinline__ unsigned vectors_left(uint64_t nvectors, uint64_t begin)
{
	const uint64_t left = nvectors > begin ? nvectors - begin : 0;

	return left < UINT32_MAX ? (unsigned)left : UINT32_MAX;
}

/* 1 + 2/32 bytes read, 4 written per element. */
template <class codec, unsigned GROUP>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_groups(const typename codec::code_type *codes, const void *scales,
		      enum tsr_scale format, uint64_t nvectors, float *x)
{
	const unsigned team = GROUP / W;
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
					      begin / team + u * (TSR_BLOCK / team));
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
			out.v[k] = codec::value((float)(int32_t)in[u].v[k], scale);
		if ((tsr_bits_from_f32(scale) & TSR_F32_INF) == TSR_F32_INF) {
#pragma unroll
			for (int k = 0; k < W; k++)
				out.v[k] = with_cpu_nan(out.v[k], scale);
		}
		tsr_store(x + begin * W, u * TSR_BLOCK, out);
	}
}

/* --- Groups of any size, arrays of any alignment, the short group at the end ----------------- */

template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_any(const float *x, uint64_t n, struct groups groups, unsigned log_team,
		   typename codec::code_type *codes, struct scale_plane plane,
		   struct tsr_encode_report *report)
{
	const struct team t = my_team(n, groups, log_team);
	struct scale_events events = { 0, 0 };
	uint32_t max = 0;
	float scale, unit, factor;
	int32_t least;

	for (uint32_t k = t.thread; k < t.count; k += t.nthreads)
		max = ::max(max, tsr_bits_from_f32(x[t.first + k]) & TSR_F32_MAG);
	for (uint32_t distance = t.nthreads / 2; distance; distance /= 2)
		max = ::max(max, __shfl_xor_sync(TSR_WHOLE_WARP, max, distance));
	scale = put_scale(plane, t.group, codec::peak(tsr_f32_from_bits(max)), codec::e8m8_max(),
			  t.count && t.thread == 0, &events);
	unit = codec::unit(scale);
	factor = codec::factor(scale);
	least = codec::least(plane.format, scale);
	for (uint32_t k = t.thread; k < t.count; k += t.nthreads) {
		const float value = x[t.first + k];

		codes[t.first + k] = (typename codec::code_type)codec::positive(
			codec::code(value * unit, factor), value, least);
	}
	if (plane.format == TSR_SCALE_F16 && report) {
		tsr_add_count(&report->scale_underflow, events.underflow);
		tsr_add_count(&report->scale_overflow, events.overflow);
	}
}

template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_any(const typename codec::code_type *codes, const void *scales,
		   enum tsr_scale format, uint64_t n, struct groups groups, unsigned log_team,
		   float *x)
{
	const struct team t = my_team(n, groups, log_team);
	float scale;

	if (!t.count)
		return;
	scale = scale_value(load_scale(scales, format, t.group), format);
	for (uint32_t k = t.thread; k < t.count; k += t.nthreads)
		x[t.first + k] = with_cpu_nan(
			codec::value((float)(int32_t)codes[t.first + k], scale), scale);
}

/* --- Launches -------------------------------------------------------------------------------- */

/* Elements in whole groups that the kernels for the usual sizes take: 32, and 64 of ratio8. */
static uint64_t groups_part(const struct tsr_coding *coding, const void *x, const void *codes,
			    uint64_t n)
{
	const bool fits = (coding->group == 32 || coding->group == 64) && !coding->row &&
			  tsr_is_aligned(x, 16) && tsr_is_aligned(codes, TILE);

	return fits ? n - n % coding->group : 0;
}

static uint64_t scale_size(enum tsr_scale format)
{
	return format == TSR_SCALE_F32 ? 4 : 2;
}

template <class codec>
static void run_encode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const float *x, uint64_t n, void *const plane[],
		       struct tsr_encode_report *report)
{
	typename codec::code_type *codes = (typename codec::code_type *)plane[0];
	struct scale_plane scales = { plane[1], coding->scale };
	const uint64_t part = groups_part(coding, x, codes, n), rest = n - part;
	const struct groups groups = groups_of(coding);
	const unsigned log_team = log_team_of(groups.size);
	const unsigned nblocks = team_blocks(coding, rest, log_team);

	if (part)
		(coding->group == 32 ? encode_groups<codec, 32>
				     : encode_groups<codec, 64>)<<<tsr_blocks(part / TILE, 1),
								   TSR_BLOCK, 0, stream->handle>>>(
			x, part / TILE, codes, scales, report);
	scales.scales = (char *)plane[1] + part / coding->group * scale_size(coding->scale);
	if (rest)
		encode_any<codec><<<nblocks, TSR_BLOCK, 0, stream->handle>>>(
			x + part, rest, groups, log_team, codes + part, scales, report);
}

template <class codec>
static void run_decode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const void *const plane[], uint64_t n, float *x)
{
	const typename codec::code_type *codes = (const typename codec::code_type *)plane[0];
	const uint64_t part = groups_part(coding, x, codes, n), rest = n - part;
	const char *rest_scales = (const char *)plane[1] +
				  part / coding->group * scale_size(coding->scale);
	const struct groups groups = groups_of(coding);
	const unsigned log_team = log_team_of(groups.size);
	const unsigned nblocks = team_blocks(coding, rest, log_team);

	if (part)
		(coding->group == 32 ? decode_groups<codec, 32>
				     : decode_groups<codec, 64>)<<<tsr_blocks(part / W, EACH),
								   TSR_BLOCK, 0, stream->handle>>>(
			codes, plane[1], coding->scale, part / W, x);
	if (rest)
		decode_any<codec><<<nblocks, TSR_BLOCK, 0, stream->handle>>>(
			codes + part, rest_scales, coding->scale, rest, groups, log_team, x + part);
}

#define X(id, each, loops, group, code, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run_encode<loops<group_##group, code>>, \
							  run_decode<loops<group_##group, code>>, \
							  NULL };
TSR_GROUPED_LIST(X)
