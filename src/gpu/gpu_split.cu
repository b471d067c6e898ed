/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of codecs that store each element by itself. */
#include "gpu/cuda.h"
#include "gpu/gpu_split.cuh"
#include "gpu/vector.cuh"

/* --- Kernels --------------------------------------------------------------------------------- */

/*
 * A thread has one vector of W elements: more of them, in flight at once, made nothing faster.
 * 4 bytes read and those of the planes written per element, or the other way round.
 */
template <class codec, int W>
static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_split(const float *x, uint64_t nvectors, typename codec::first *first,
		     typename codec::second *second, struct tsr_encode_report *report)
{
	const uint64_t i = tsr_first_vector(1);
	unsigned overflow = 0;

	if (i < nvectors) {
		const struct tsr_vec<float, W> in = tsr_load<float, W>(x, i);
		struct tsr_vec<typename codec::first, W> a;
		struct tsr_vec<typename codec::second, W> b;

		overflow = codec::template encode<W>(in.v, a.v, b.v);
		tsr_store(first, i, a);
		if constexpr (codec::nplanes == 2)
			tsr_store(second, i, b);
	}
	if (codec::counts && report)
		tsr_add_count(&report->narrow_overflow, overflow);
}

template <class codec, int W>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_split(const typename codec::first *first, const typename codec::second *second,
		     uint64_t nvectors, float *x)
{
	const uint64_t i = tsr_first_vector(1);
	struct tsr_vec<typename codec::first, W> a;
	struct tsr_vec<typename codec::second, W> b;
	struct tsr_vec<float, W> out;

	if (i >= nvectors)
		return;
	a = tsr_load<typename codec::first, W>(first, i);
	if constexpr (codec::nplanes == 2)
		b = tsr_load<typename codec::second, W>(second, i);
	codec::template decode<W>(a.v, b.v, out.v);
	tsr_store(x, i, out);
}

/* --- Launches -------------------------------------------------------------------------------- */

template <class codec> struct planes {
	typename codec::first *first;
	typename codec::second *second;
};

template <class codec>
static struct planes<codec> planes_of(const struct tsr_coding *coding, const void *const plane[],
				      uint64_t at) {
	struct planes<codec> p = {
		(typename codec::first *)plane[0] + at, NULL
	};

	if (coding->codec->nplanes == 2)
		p.second = (typename codec::second *)plane[1] + at;
	return p;
}

/* Elements of which all arrays take aligned vectors of 4. */
template <class codec>
static uint64_t vector_part(const float *x, struct planes<codec> p, uint64_t n)
{
	const bool aligned = tsr_is_aligned(x, 16) &&
			     tsr_is_aligned(p.first, 4 * sizeof(*p.first)) &&
			     tsr_is_aligned(p.second, 4 * sizeof(*p.second));

	return aligned ? n - n % 4 : 0;
}

template <class codec>
static void run_encode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const float *x, uint64_t n, void *const plane[],
		       struct tsr_encode_report *report)
{
	struct planes<codec> p = planes_of<codec>(coding, plane, 0);
	const uint64_t part = vector_part<codec>(x, p, n), rest = n - part;

	if (part)
		encode_split<codec, 4><<<tsr_blocks(part / 4, 1), TSR_BLOCK, 0, stream->handle>>>(
			x, part / 4, p.first, p.second, report);
	p = planes_of<codec>(coding, plane, part);
	if (rest)
		encode_split<codec, 1><<<tsr_blocks(rest, 1), TSR_BLOCK, 0, stream->handle>>>(
			x + part, rest, p.first, p.second, report);
}

template <class codec>
static void run_decode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const void *const plane[], uint64_t n, float *x)
{
	struct planes<codec> p = planes_of<codec>(coding, plane, 0);
	const uint64_t part = vector_part<codec>(x, p, n), rest = n - part;

	if (part)
		decode_split<codec, 4><<<tsr_blocks(part / 4, 1), TSR_BLOCK, 0, stream->handle>>>(
			p.first, p.second, part / 4, x);
	p = planes_of<codec>(coding, plane, part);
	if (rest)
		decode_split<codec, 1><<<tsr_blocks(rest, 1), TSR_BLOCK, 0, stream->handle>>>(
			p.first, p.second, rest, x + part);
}

/* --- FP32 ------------------------------------------------------------------------------------ */

static void run_encode_f32(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			   const float *x, uint64_t n, void *const plane[],
			   struct tsr_encode_report *report)
{
	(void)coding;
	(void)report;
	cudaMemcpyAsync(plane[0], x, n * sizeof(*x), cudaMemcpyDeviceToDevice, stream->handle);
}

static void run_decode_f32(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			   const void *const plane[], uint64_t n, float *x)
{
	(void)coding;
	cudaMemcpyAsync(x, plane[0], n * sizeof(*x), cudaMemcpyDeviceToDevice, stream->handle);
}

const struct tsr_gpu_codec tsr_gpu_codec_f32 = { run_encode_f32, run_decode_f32,
						 TSR_TABLES_COUNT };

/* --- The others ------------------------------------------------------------------------------ */

#define X(id, each, loops, format, code, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run_encode<loops<format, code>>, \
							  run_decode<loops<format, code>>, \
							  TSR_TABLES_COUNT };
TSR_SPLIT_LIST(X)
