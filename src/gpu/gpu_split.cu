/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of codecs that store each element by itself. */
#include "gpu/cuda.h"
#include "gpu/gpu_split.cuh"
#include "gpu/vector.cuh"

/* --- Kernels --------------------------------------------------------------------------------- */

/*
 * A thread has one vector of W elements: of 4, on an H200 1.7 to 2.1 times as fast as of 1; more of them, in
 * flight at once, made nothing faster.
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
template <class codec> static uint64_t vector_part(const struct tsr_gpu_job *j)
{
	const struct coded_planes p = tsr_gpu_planes(j, 0);
	const bool aligned = tsr_is_aligned(j->x, 16) &&
			     tsr_is_aligned(p.plane[0], 4 * sizeof(typename codec::first)) &&
			     tsr_is_aligned(p.plane[1], 4 * sizeof(typename codec::second));

	return aligned ? j->n - j->n % 4 : 0;
}

/* @n elements from @first on, by vectors of W. */
template <class codec, int W>
static void start(const struct tsr_gpu_job *j, uint64_t first, uint64_t n)
{
	const struct coded_planes planes = tsr_gpu_planes(j, first);
	const unsigned blocks = tsr_blocks(n / W, 1);

	if (!n)
		return;
	if (j->decodes)
		decode_split<codec, W>
			<<<blocks, TSR_BLOCK, 0, j->stream->handle>>>(planes, n / W, j->x + first);
	else
		encode_split<codec, W><<<blocks, TSR_BLOCK, 0, j->stream->handle>>>(
			j->x + first, n / W, planes, j->report);
}

template <class codec> static void run(const struct tsr_gpu_job *j)
{
	const uint64_t part = vector_part<codec>(j);

	start<codec, 4>(j, 0, part);
	start<codec, 1>(j, part, j->n - part);
}

static void run_f32(const struct tsr_gpu_job *j)
{
	cudaMemcpyAsync(j->decodes ? j->x : j->plane[0], j->decodes ? j->plane[0] : j->x,
			j->n * sizeof(*j->x), cudaMemcpyDeviceToDevice, j->stream->handle);
}

const struct tsr_gpu_codec tsr_gpu_codec_f32 = { run_f32, TSR_TABLES_COUNT };

#define X(id, each, loops, format, code, ...) \
	const struct tsr_gpu_codec tsr_gpu_codec_##id = { run<loops<format, code>>, \
							  TSR_TABLES_COUNT };
TSR_SPLIT_LIST(X)
