/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs whose blocks are learned, and sums over blocks in the order of the CPU.  See gpu_groups.cuh. */
#ifndef TSR_GPU_LEARNED_CUH
#define TSR_GPU_LEARNED_CUH

#include "codec/learned_math.h"
#include "gpu/gpu_groups.cuh"

/* --- Codecs ------------------------------------------------------------------------------------ */

/* In the type of the state, where that is not FP32. */
static __host__ __device__ __forceinline__ float narrowed(enum tsr_dtype narrow, float x)
{
	return tsr_gefen_narrow(narrow == TSR_BF16, narrow == TSR_F16, x);
}

/* What the host has; to decode, in the type of the state. */
struct learned_codebook {
	float entry[256];
};

struct gefen_codes : group_codec {
	typedef uint8_t code_type;
	typedef float stored, coder;
	typedef learned_codebook codebook;

	static __device__ __forceinline__ stored load(const struct coded_planes &p, uint64_t g)
	{
		return ((const float *)p.plane[1])[g];
	}
	template <int N>
	static __device__ __forceinline__ void decode(const struct coded_planes &p, stored scale,
						      const code_type *in, float *x)
	{
#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] = with_cpu_nan(tsr_gefen_value(p.codebook, in[k], scale), scale);
	}
	static __device__ __forceinline__ coder begin(const struct coded_planes &p,
						      struct magnitudes m, uint64_t g, bool stores,
						      struct scale_events *)
	{
		const float scale = narrowed(p.narrow, tsr_f32_from_bits(m.largest));

		if (stores)
			((float *)p.plane[1])[g] = scale;
		return scale;
	}
	template <int N>
	static __device__ __forceinline__ void encode(const struct coded_planes &p, coder scale,
						      const float *x, code_type *out)
	{
#pragma unroll
		for (int k = 0; k < N; k++)
			out[k] = (code_type)tsr_gefen_code(p.codebook, x[k], scale);
	}
};

/* A mean for all elements of a block; to encode it there is a kernel of its own. */
struct block_means : group_codec {
	typedef uint8_t code_type; /* there is none */
	typedef float stored;
	static const bool has_codes = false;

	static __device__ __forceinline__ stored load(const struct coded_planes &p, uint64_t g)
	{
		return ((const float *)p.plane[0])[g];
	}
	template <int N>
	static __device__ __forceinline__ void decode(const struct coded_planes &, stored mean,
						      const code_type *, float *x)
	{
#pragma unroll
		for (int k = 0; k < N; k++)
			x[k] = mean;
	}
};

/* --- Sums -------------------------------------------------------------------------------------- */

/* The block that a warp has. */
static __device__ __forceinline__ struct team my_block(uint64_t n, uint32_t size)
{
	return my_team(n, { size, 0, 0, 5 });
}

/* Each lane adds whole pieces; their sums are added in their order, by all lanes alike. */
template <class values>
static __device__ __forceinline__ double sum_of_block(const struct team &b, const values &value)
{
	const uint32_t npieces = (b.count + TSR_MEAN_PIECE - 1) / TSR_MEAN_PIECE;
	double sum = 0;

	for (uint32_t first = 0; first < npieces; first += 32) {
		const uint32_t begin = (first + b.thread) * TSR_MEAN_PIECE;
		double piece = 0;

		for (uint32_t k = begin; k < b.count && k < begin + TSR_MEAN_PIECE; k++)
			piece += value(b.first + k);
		for (uint32_t lane = 0; lane < 32 && first + lane < npieces; lane++)
			sum += __shfl_sync(TSR_WHOLE_WARP, piece, (int)lane);
	}
	return sum;
}

/* How many blocks of threads that takes. */
static inline unsigned warps_for(uint64_t n, uint32_t size)
{
	return tsr_blocks((n + size - 1) / size * 32, 1);
}

#endif
