/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of codecs in groups whose codes are packed, 32 in k words: a warp has a group, and a share of 32
 * elements at a time.  The codecs are classes as in gpu_groups.cuh.
 */
#include "gpu/gpu_tables.cuh"

#define SHARE TSR_BIT_PACKED_SHARE

DEFINE_FORMULAS(softsign9)
DEFINE_FORMULAS(softsign10)
DEFINE_FORMULAS(max3)
DEFINE_FORMULAS(max4)

/* What the codes of a codec are taken for in C; and whether its groups' peak is their root mean square. */
template <class base, unsigned nbits, bool rms> struct packed : base {
	static const unsigned bits = nbits;
	static const bool has_rms = rms;

	/* The code of an element from its bits, and the reverse. */
	static __device__ __forceinline__ typename base::code_type code_of(uint32_t stored)
	{
		if ((typename base::code_type) - 1 > 0)
			return (typename base::code_type)stored;
		return (typename base::code_type)((int32_t)(stored << (32 - nbits)) >>
						  (32 - nbits));
	}
	static __device__ __forceinline__ uint32_t bits_of(typename base::code_type code)
	{
		return (uint32_t)(int32_t)code & ((1u << nbits) - 1);
	}
};

template <class formulas, unsigned bits>
using packed_peak = packed<grouped<formulas, int16_t>, bits, false>;
template <class formulas, unsigned bits>
using packed_rms = packed<grouped<formulas, int8_t>, bits, true>;
template <unsigned bits> using packed_log = packed<logarithmic, bits, false>;

/* The words of a share, of which a thread has one: those of a value come from the threads that have it. */
template <unsigned bits>
static __device__ __forceinline__ uint32_t pack_word(uint32_t value, unsigned lane)
{
	const unsigned from = lane * 32 / bits;
	uint32_t word = 0;

#pragma unroll
	for (unsigned i = 0; i < 32 / bits + 2; i++) {
		const int at = (int)((from + i) * bits) - (int)(lane * 32);
		const uint32_t v = __shfl_sync(TSR_WHOLE_WARP, value, (from + i) % 32);

		word |= at >= 32 ? 0 : at >= 0 ? v << at : v >> -at;
	}
	return word;
}

template <unsigned bits>
static __device__ __forceinline__ uint32_t unpack_word(const uint32_t *share, unsigned lane)
{
	const unsigned word = lane * bits / 32, at = lane * bits % 32;
	const uint32_t low = share[word] >> at;
	const uint32_t high = at + bits > 32 ? share[word + 1] << (32 - at) : 0;

	return (low | high) & ((1u << bits) - 1);
}

/* The largest and least magnitudes of a group; or with its root mean square as the largest. */
template <class codec>
static __device__ __forceinline__ struct magnitudes measure(const float *x, struct team t)
{
	struct magnitudes m = { 0, INT32_MAX };
	uint32_t sum = 0;

	for (uint32_t k = t.thread; k < t.count; k += SHARE) {
		m.largest = ::max(m.largest, magnitude(x[t.first + k]));
		m.least = ::min(m.least, unless_zero(magnitude(x[t.first + k])));
	}
	m = join_magnitudes(m, SHARE);
	if (!codec::has_rms)
		return m;
	for (uint32_t k = t.thread; k < t.count; k += SHARE)
		sum += tsr_square_share(x[t.first + k], tsr_f32_from_bits(m.largest));
	sum = __reduce_add_sync(TSR_WHOLE_WARP, sum);
	m.largest = tsr_bits_from_f32(
		tsr_root_mean_square(tsr_f32_from_bits(m.largest), sum, t.count));
	return m;
}

template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_packed(const float *x, uint64_t n, struct groups groups,
		      const __grid_constant__ coded_planes planes)
{
	const struct team t = my_team(n, groups);
	struct scale_events events = { 0, 0 };
	typename codec::coder coder;

	if (!t.count)
		return;
	coder = codec::begin(planes, measure<codec>(x, t), t.group, t.thread == 0, &events);
	for (uint32_t k = 0; k < t.count; k += SHARE) {
		const uint64_t share = t.first + k;
		typename codec::code_type code = 0;
		uint32_t word;

		if (k + t.thread < t.count)
			codec::template encode<1>(planes, coder, &x[share + t.thread], &code);
		word = pack_word<codec::bits>(codec::bits_of(code), t.thread);
		if (t.thread < codec::bits)
			((uint32_t *)planes.plane[0])[share / SHARE * codec::bits + t.thread] =
				word;
	}
}

template <class codec>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_packed(const __grid_constant__ coded_planes planes, uint64_t n, struct groups groups,
		      float *x)
{
	const struct team t = my_team(n, groups);
	typename codec::stored stored;

	if (!t.count)
		return;
	stored = codec::load(planes, t.group);
	for (uint32_t k = t.thread; k < t.count; k += SHARE) {
		const uint64_t share = (t.first + k) / SHARE * codec::bits;
		const typename codec::code_type code = codec::code_of(unpack_word<codec::bits>(
			(const uint32_t *)planes.plane[0] + share, t.thread));

		codec::template decode<1>(planes, stored, &code, &x[t.first + k]);
	}
}

template <class codec> static void run(const struct tsr_gpu_job *j)
{
	const struct coded_planes planes = tsr_gpu_planes(j, 0);
	const struct groups groups = { j->coding->group, 0, 0, 5 };
	const unsigned blocks = tsr_blocks((j->n + groups.size - 1) / groups.size * SHARE, 1);

	if (j->decodes)
		decode_packed<codec>
			<<<blocks, TSR_BLOCK, 0, j->stream->handle>>>(planes, j->n, groups, j->x);
	else
		encode_packed<codec>
			<<<blocks, TSR_BLOCK, 0, j->stream->handle>>>(j->x, j->n, groups, planes);
}

#define X(id, each, loops, format, bits, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run<loops<group_##format, bits>>, \
							  TSR_TABLES_COUNT };
TSR_PACKED_GROUP_LIST(X)
#undef X
#define X(id, each, loops, set, bits, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run<loops<bits>>, TSR_TABLES_##set };
TSR_PACKED_LOG_LIST(X)
