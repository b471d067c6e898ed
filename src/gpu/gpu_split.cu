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
	encode_split(const float *x, uint64_t nvectors, const __grid_constant__ coded_planes planes,
		     struct tsr_encode_report *report)
{
	const uint64_t i = tsr_first_vector(1);
	unsigned overflow = 0;
	float in[W];

	if (i < nvectors) {
		load_tile<float, W>(x, i, in);
		overflow = store_split<codec, W>(planes, i, in);
	}
	if (codec::counts && report)
		tsr_add_count(&report->narrow_overflow, overflow);
}

template <class codec, int W>
static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_split(const __grid_constant__ coded_planes planes, uint64_t nvectors, float *x)
{
	const uint64_t i = tsr_first_vector(1);
	float out[W];

	if (i >= nvectors)
		return;
	load_split<codec, W>(planes, i, out);
	store_tile<float, W>(x, i, out);
}

/* --- Launches -------------------------------------------------------------------------------- */

/* Elements of which all arrays take aligned vectors of 4. */
template <class codec>
static uint64_t vector_part(const float *x, struct coded_planes p, uint64_t n)
{
	const bool aligned = tsr_is_aligned(x, 16) &&
			     tsr_is_aligned(p.plane[0], 4 * sizeof(typename codec::first)) &&
			     tsr_is_aligned(p.plane[1], 4 * sizeof(typename codec::second));

	return aligned ? n - n % 4 : 0;
}

template <class codec>
static void run_encode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const float *x, uint64_t n, void *const plane[],
		       struct tsr_encode_report *report)
{
	const struct coded_planes planes = tsr_gpu_planes(stream, coding, plane, 0);
	const uint64_t part = vector_part<codec>(x, planes, n), rest = n - part;

	if (part)
		encode_split<codec, 4><<<tsr_blocks(part / 4, 1), TSR_BLOCK, 0, stream->handle>>>(
			x, part / 4, planes, report);
	if (rest)
		encode_split<codec, 1><<<tsr_blocks(rest, 1), TSR_BLOCK, 0, stream->handle>>>(
			x + part, rest, tsr_gpu_planes(stream, coding, plane, part), report);
}

template <class codec>
static void run_decode(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
		       const void *const plane[], uint64_t n, float *x)
{
	const struct coded_planes planes = tsr_gpu_planes(stream, coding, plane, 0);
	const uint64_t part = vector_part<codec>(x, planes, n), rest = n - part;

	if (part)
		decode_split<codec, 4><<<tsr_blocks(part / 4, 1), TSR_BLOCK, 0, stream->handle>>>(
			planes, part / 4, x);
	if (rest)
		decode_split<codec, 1><<<tsr_blocks(rest, 1), TSR_BLOCK, 0, stream->handle>>>(
			tsr_gpu_planes(stream, coding, plane, part), rest, x + part);
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

const struct tsr_gpu_codec tsr_gpu_codec_f32 = { run_encode_f32, run_decode_f32, TSR_TABLES_COUNT };

/* --- The others ------------------------------------------------------------------------------ */

#define X(id, each, loops, format, code, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run_encode<loops<format, code>>, \
							  run_decode<loops<format, code>>, \
							  TSR_TABLES_COUNT };
TSR_SPLIT_LIST(X)
