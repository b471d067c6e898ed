/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a tensor, each of which a warp has, and sums over them in the order of the CPU. */
#ifndef TSR_GPU_LEARNED_CUH
#define TSR_GPU_LEARNED_CUH

#include "codec/learned_math.h"
#include "gpu/cuda.h"
#include "gpu/vector.cuh"

#define WARP 32u

/* The block of this warp: its elements, none behind the end. */
struct block {
	uint64_t index, first;
	uint32_t count, lane;
};

static __device__ __forceinline__ struct block my_block(uint64_t n, uint32_t size)
{
	const uint64_t thread = tsr_first_vector(1);
	struct block b;

	b.index = thread / WARP;
	b.lane = threadIdx.x % WARP;
	b.first = b.index * size;
	b.count = b.first >= n ? 0 : n - b.first < size ? (uint32_t)(n - b.first) : size;
	return b;
}

/* Each lane adds whole pieces; their sums are added in their order, by all lanes alike. */
template <class values>
static __device__ __forceinline__ double sum_of_block(const struct block &b, const values &value)
{
	const uint32_t npieces = (b.count + TSR_MEAN_PIECE - 1) / TSR_MEAN_PIECE;
	double sum = 0;

	for (uint32_t first = 0; first < npieces; first += WARP) {
		const uint32_t begin = (first + b.lane) * TSR_MEAN_PIECE;
		double piece = 0;

		for (uint32_t k = begin; k < b.count && k < begin + TSR_MEAN_PIECE; k++)
			piece += value(b.first + k);
		for (uint32_t lane = 0; lane < WARP && first + lane < npieces; lane++)
			sum += __shfl_sync(0xffffffffu, piece, (int)lane);
	}
	return sum;
}

/* How many blocks of threads that takes. */
static inline unsigned warps_for(uint64_t n, uint32_t size)
{
	return tsr_blocks((n + size - 1) / size * WARP, 1);
}

#endif
