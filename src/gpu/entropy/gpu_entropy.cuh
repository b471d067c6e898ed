/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What coding and decoding of planes share: a block of threads has a piece, a warp a segment of it, and
 * a lane of the warp is a lane of the coder, which has four elements in a row of each 128.
 */
#ifndef TSR_GPU_GPU_ENTROPY_CUH
#define TSR_GPU_GPU_ENTROPY_CUH

#include "gpu/cuda.h"
#include "gpu/ptx.cuh"
#include "gpu/vector.cuh"

extern "C" {
#include "entropy/entropy.h"
}
#include "entropy/rans_math.h"

#define NSYMBOLS 256u
#define WARPS (TSR_BLOCK / 32)

static_assert(TSR_BLOCK == NSYMBOLS, "a thread has a symbol of a table");
static_assert(WARPS * TSR_RANS_SEGMENT == TSR_ENTROPY_PIECE, "a warp has a segment of a piece");

/* --- Elements ---------------------------------------------------------------------------------- */

/* The run of a lane: TSR_RANS_RUN elements of W bytes, as they are in memory. */
template <int W> struct run_of {
	uint32_t word[W];
};

/* How many elements of its run a lane has, of @n in a block of TSR_RANS_BLOCK from element @first on. */
static __device__ __forceinline__ uint32_t count_run(uint32_t n, uint32_t first, unsigned lane)
{
	const uint32_t at = first + TSR_RANS_RUN * lane;

	return at >= n ? 0 : n - at < TSR_RANS_RUN ? n - at : TSR_RANS_RUN;
}

/* Runs begin at multiples of their size from the beginning of an array that is aligned to 16 bytes. */
template <int W>
static __device__ __forceinline__ struct run_of<W> load_run(const unsigned char *at,
							    uint32_t count) {
	struct run_of<W> run = {
	};

	if (count == TSR_RANS_RUN) {
		if constexpr (W <= 4)
			*(typename tsr_word<4 * W>::type *)&run = *(
				const typename tsr_word<4 * W>::type *)at;
		else
			for (unsigned i = 0; i < 2; i++)
				((uint4 *)&run)[i] = ((const uint4 *)at)[i];
		return run;
	}
	for (unsigned i = 0; i < W * count; i++)
		run.word[i / 4] |= (uint32_t)at[i] << 8 * (i % 4);
	return run;
}

template <int W>
static __device__ __forceinline__ void store_run(unsigned char *at, struct run_of<W> run,
						 uint32_t count)
{
	if (count == TSR_RANS_RUN) {
		if constexpr (W <= 4)
			__stcs((typename tsr_word<4 * W>::type *)at,
			       *(const typename tsr_word<4 * W>::type *)&run);
		else
			for (unsigned i = 0; i < 2; i++)
				((uint4 *)at)[i] = ((const uint4 *)&run)[i];
		return;
	}
	for (unsigned i = 0; i < W * count; i++)
		at[i] = (unsigned char)(run.word[i / 4] >> 8 * (i % 4));
}

/* Move the signs of elements to their ends, or back. */
template <int W, bool BACK> static __device__ __forceinline__ void rotate(struct run_of<W> *run)
{
	constexpr unsigned WIDTH = W == 2 ? 16 : 32, LEFT = BACK ? WIDTH - 1 : 1;
	constexpr uint32_t LOWEST = W == 2 ? 0x00010001u : 1u; /* of elements */
	constexpr uint32_t FROM_LEFT = BACK ? LOWEST << (WIDTH - 1) : ~LOWEST;

	for (unsigned i = 0; i < W; i++) {
		const uint32_t v = run->word[i];

		run->word[i] = (v << LEFT & FROM_LEFT) | (v >> (WIDTH - LEFT) & ~FROM_LEFT);
	}
}

/* The symbols that a run gives to stream @k, the first one lowest. */
template <int W>
static __device__ __forceinline__ uint32_t symbols_of(struct run_of<W> run, unsigned k)
{
	if constexpr (W == 1) {
		return run.word[0];
	} else if constexpr (W == 2) {
		return __byte_perm(run.word[0], run.word[1], k ? 0x7531 : 0x6420);
	} else {
		uint32_t symbols = 0;

#pragma unroll
		for (unsigned i = 0; i < TSR_RANS_RUN; i++)
			symbols |= (run.word[(W * i + k) / 4] >> 8 * (k % 4) & 0xff) << 8 * i;
		return symbols;
	}
}

/* A run from the symbols of all its streams. */
template <int W>
static __device__ __forceinline__ struct run_of<W> merge_symbols(const uint32_t *symbols) {
	struct run_of<W> run = {
	};

	if constexpr (W == 1) {
		run.word[0] = symbols[0];
	} else if constexpr (W == 2) {
		run.word[0] = __byte_perm(symbols[0], symbols[1], 0x5140);
		run.word[1] = __byte_perm(symbols[0], symbols[1], 0x7362);
	} else {
#pragma unroll
		for (unsigned i = 0; i < TSR_RANS_RUN * W; i++)
			run.word[i / 4] |= (symbols[i % W] >> 8 * (i / W) & 0xff) << 8 * (i % 4);
	}
	return run;
}

/* --- Blocks of threads -------------------------------------------------------------------------- */

/* The sum of the values of all lanes before this one. */
static __device__ __forceinline__ uint32_t
sum_of_lanes_before(uint32_t value)
{
	const unsigned lane = threadIdx.x % 32;
	uint32_t sum = value;

	for (unsigned d = 1; d < 32; d *= 2) {
		const uint32_t other = __shfl_sync(TSR_WHOLE_WARP, sum, lane - d);

		sum += lane >= d ? other : 0;
	}
	return sum - value;
}

/* The sum of the values of all threads before this one; *all_ret: of all.  @partial: of each warp. */
static __device__ __forceinline__ uint32_t sum_before(uint32_t value, uint32_t *partial,
						      uint32_t *all_ret)
{
	const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t before_in_warp = sum_of_lanes_before(value);
	uint32_t before = 0, all = 0;

	__syncthreads();
	if (lane == 31)
		partial[warp] = before_in_warp + value;
	__syncthreads();
	for (unsigned i = 0; i < WARPS; i++) {
		before += i < warp ? partial[i] : 0;
		all += partial[i];
	}
	*all_ret = all;
	return before + before_in_warp;
}

static __device__ __forceinline__ uint32_t round_up_to_4(uint32_t nbytes)
{
	return (nbytes + 3) / 4 * 4;
}

#endif
