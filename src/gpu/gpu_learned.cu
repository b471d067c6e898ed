/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of codecs whose blocks are learned: gefen8 and blockmean.  A warp has a block; the codebook, which
 * the host has, is an argument of the kernel.
 */
#include "codec/learned_math.h"
#include "gpu/cuda.h"
#include "gpu/gpu_groups.cuh"
#include "gpu/gpu_learned.cuh"

#define ENTRIES 256u

struct codebook {
	float entry[ENTRIES];
};

/* In shared memory threads of a warp can read different entries at once. */
static __device__ __forceinline__ void share(const struct codebook *book, float *entry)
{
	entry[threadIdx.x] = book->entry[threadIdx.x];
	__syncthreads();
}

static_assert(TSR_BLOCK == ENTRIES, "an entry for each thread");

/* In the type of the state, where that is not FP32. */
static __host__ __device__ __forceinline__ float narrowed(enum tsr_dtype narrow, float x)
{
	return tsr_gefen_narrow(narrow == TSR_BF16, narrow == TSR_F16, x);
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_codes(const float *x, uint64_t n, uint32_t size, enum tsr_dtype narrow,
		     struct codebook book, uint8_t *codes, float *scales)
{
	__shared__ float entry[ENTRIES];
	const struct block b = my_block(n, size);
	uint32_t max = 0;
	float scale;

	share(&book, entry);
	for (uint32_t k = b.lane; k < b.count; k += WARP)
		max = ::max(max, tsr_bits_from_f32(x[b.first + k]) & TSR_F32_MAG);
	for (uint32_t distance = WARP / 2; distance; distance /= 2)
		max = ::max(max, __shfl_xor_sync(0xffffffffu, max, distance));
	scale = narrowed(narrow, tsr_f32_from_bits(max));
	if (b.count && b.lane == 0)
		scales[b.index] = scale;
	for (uint32_t k = b.lane; k < b.count; k += WARP)
		codes[b.first + k] = (uint8_t)tsr_gefen_code(entry, x[b.first + k], scale);
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_codes(const uint8_t *codes, const float *scales, uint64_t n, uint32_t size,
		     struct codebook book, float *x)
{
	__shared__ float entry[ENTRIES];
	const struct block b = my_block(n, size);

	share(&book, entry);
	for (uint32_t k = b.lane; k < b.count; k += WARP) {
		const float scale = scales[b.index];

		x[b.first + k] = with_cpu_nan(tsr_gefen_value(entry, codes[b.first + k], scale),
					      scale);
	}
}

struct plain_value {
	const float *x;

	__device__ double operator()(uint64_t i) const
	{
		return (double)x[i];
	}
};

static __global__ void __launch_bounds__(TSR_BLOCK)
	encode_means(const float *x, uint64_t n, uint32_t size, enum tsr_dtype narrow, float *means)
{
	const struct block b = my_block(n, size);
	const struct plain_value values = { x };
	const double sum = sum_of_block(b, values);

	if (b.count && b.lane == 0)
		means[b.index] = narrowed(narrow, tsr_block_mean(sum, b.count));
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	decode_means(const float *means, uint64_t n, uint32_t size, float *x)
{
	const struct block b = my_block(n, size);

	for (uint32_t k = b.lane; k < b.count; k += WARP)
		x[b.first + k] = means[b.index];
}

/* --- Launches -------------------------------------------------------------------------------- */

static unsigned blocks_for(const struct tsr_coding *coding, uint64_t n)
{
	return warps_for(n, coding->group);
}

static struct codebook book_of(const struct tsr_coding *coding)
{
	struct codebook book;

	for (unsigned i = 0; i < ENTRIES; i++)
		book.entry[i] = coding->codebook[i];
	return book;
}

static void run_encode_gefen8(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			      const float *x, uint64_t n, void *const plane[],
			      struct tsr_encode_report *report)
{
	(void)report;
	encode_codes<<<blocks_for(coding, n), TSR_BLOCK, 0, stream->handle>>>(
		x, n, coding->group, coding->narrow, book_of(coding), (uint8_t *)plane[0],
		(float *)plane[1]);
}

static void run_decode_gefen8(const struct tsr_gpu_stream *stream, const struct tsr_coding *coding,
			      const void *const plane[], uint64_t n, float *x)
{
	struct codebook book = book_of(coding);

	for (unsigned i = 0; i < ENTRIES; i++)
		book.entry[i] = narrowed(coding->narrow, book.entry[i]);
	decode_codes<<<blocks_for(coding, n), TSR_BLOCK, 0, stream->handle>>>(
		(const uint8_t *)plane[0], (const float *)plane[1], n, coding->group, book, x);
}

static void run_encode_blockmean(const struct tsr_gpu_stream *stream,
				 const struct tsr_coding *coding, const float *x, uint64_t n,
				 void *const plane[], struct tsr_encode_report *report)
{
	(void)report;
	encode_means<<<blocks_for(coding, n), TSR_BLOCK, 0, stream->handle>>>(
		x, n, coding->group, coding->narrow, (float *)plane[0]);
}

static void run_decode_blockmean(const struct tsr_gpu_stream *stream,
				 const struct tsr_coding *coding, const void *const plane[],
				 uint64_t n, float *x)
{
	decode_means<<<blocks_for(coding, n), TSR_BLOCK, 0, stream->handle>>>(
		(const float *)plane[0], n, coding->group, x);
}

const struct tsr_gpu_codec tsr_gpu_codec_gefen8 = { run_encode_gefen8, run_decode_gefen8, NULL };
const struct tsr_gpu_codec tsr_gpu_codec_blockmean = { run_encode_blockmean, run_decode_blockmean,
						       NULL };
