/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps on GPUs: gpu_step.cu does any step on FP32 arrays, step_fused.cu those of a few states in one pass.
 * This header is what they share, and how fused kernels load and store weights, states and gradients.
 * In kernels, a tile is N consecutive elements, those of one thread.
 */
#ifndef TSR_GPU_STEP_CUH
#define TSR_GPU_STEP_CUH

#include <stddef.h>

#include "gpu/cuda.h"
#include "gpu/gpu_split.cuh"
#include "gpu/gpu_groups.cuh"

extern "C" {
#include "step/rules.h"
}

/* --- The rules --------------------------------------------------------------------------------- */

/* The states of a kernel that has all rules, and none of its own. */
#define ANY_STATES (-1)

/* Whether the last kernel of a step was started. */
static inline enum tsr_status step_started(const struct tsr_gpu_stream *stream,
					   const struct tsr_step *step, struct tsr_err *err)
{
	return tsr_gpu_started(stream->gpu, "a step of ", tsr_optimizer_name(step->optimizer), err);
}

/* The weights of a matrix, as tsr_gpu_step_weights(). */
enum tsr_status tsr_gpu_step_matrix(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				    const void *grad, const float *m, float *w,
				    struct tsr_err *err);

/* --- What a kernel is told --------------------------------------------------------------------- */

/*
 * What is the same for all elements: the compiler keeps it in constant memory, and conditions on it
 * are branches that no thread of a warp takes alone.
 */
struct step_args {
	struct tsr_step_scalars scalars;
	enum tsr_step_rule rule;
	unsigned weight; /* row of the codec */
	enum tsr_dtype grad_dtype;
	bool fast; /* the fast path takes these scalars */
	struct tsr_masks masks;
	const void *grad;
	struct coded_planes slot[TSR_SLOTS];
	uint64_t ntiles; /* whole groups */
	struct tsr_step_report *report; /* or NULL */
};

/* --- Weights ----------------------------------------------------------------------------------- */

template <int N>
static __device__ __forceinline__ void load_weights(const struct step_args *a, uint64_t tile,
						    float *w)
{
	const struct coded_planes &p = a->slot[TSR_SLOT_WEIGHT];

	switch (a->weight) {
#define X(id, each, loops, format, code, ...) \
	case TSR_ROW_##id: \
		load_split<loops<format, code>, N>(p, tile, w); \
		break;
		TSR_SPLIT_LIST(X)
#undef X
	default:
		load_tile<float, N>(p.plane[0], tile, w);
	}
}

/* Returns how many narrow weights overflowed. */
template <int N>
static __device__ __forceinline__ unsigned store_weights(const struct step_args *a, uint64_t tile,
							 const float *w)
{
	const struct coded_planes &p = a->slot[TSR_SLOT_WEIGHT];

	switch (a->weight) {
#define X(id, each, loops, format, code, ...) \
	case TSR_ROW_##id: \
		return store_split<loops<format, code>, N>(p, tile, w);
		TSR_SPLIT_LIST(X)
#undef X
	default:
		store_tile<float, N>(p.plane[0], tile, w);
		return 0;
	}
}

/* --- States ------------------------------------------------------------------------------------ */

/*
 * Tiles of a state, as group_tiles are: store() is called by all threads of a warp, and stores if
 * @inside.
 */
template <class split> struct split_tiles {
	static const int count = 1, tile = 16 / sizeof(typename split::first);

	template <int N>
	static __device__ __forceinline__ void load(const struct coded_planes &p, uint64_t tile,
						    float *x)
	{
		load_split<split, N>(p, tile, x);
	}
	template <int N>
	static __device__ __forceinline__ void store(const struct coded_planes &p, uint64_t tile,
						     bool inside, const float *x,
						     struct tsr_encode_report *)
	{
		if (inside)
			store_split<split, N>(p, tile, x);
	}
};

/* For slots that a rule does not have. */
struct no_tiles {
	static const int count = 0, tile = 4;

	template <int N>
	static __device__ __forceinline__ void load(const struct coded_planes &, uint64_t, float *)
	{
	}
	template <int N>
	static __device__ __forceinline__ void store(const struct coded_planes &, uint64_t, bool,
						     const float *, struct tsr_encode_report *)
	{
	}
};

/* The states of a step. */
template <class m, class v = no_tiles> struct step_states {
	typedef m momentum;
	typedef v variance;
	static const int nstates = m::count + v::count, tile = m::tile;
};

/* --- Gradients --------------------------------------------------------------------------------- */

static __device__ __forceinline__ float gradient_at(const void *grad, enum tsr_dtype dtype,
						    uint64_t i)
{
	if (dtype == TSR_F32)
		return ((const float *)grad)[i];
	return dtype == TSR_BF16 ? tsr_f32_from_bf16(((const uint16_t *)grad)[i])
				 : tsr_f32_from_f16(((const uint16_t *)grad)[i]);
}

static __device__ __forceinline__ bool is_nonfinite(float x)
{
	return (tsr_bits_from_f32(x) & TSR_F32_INF) == TSR_F32_INF;
}

template <int N>
static __device__ __forceinline__ void load_gradients(const void *grad, enum tsr_dtype dtype,
						      uint64_t tile, float *g)
{
	uint16_t narrow[N];

	if (dtype == TSR_F32) {
		load_tile<float, N>(grad, tile, g);
		return;
	}
	load_tile<uint16_t, N>(grad, tile, narrow);
	if (dtype == TSR_BF16)
		bf16::widen<N>(narrow, g);
	else
		f16::widen<N>(narrow, g);
}

/* For sum_of_block(). */
static __device__ __forceinline__ double square_at(const void *grad, enum tsr_dtype dtype,
						   uint64_t i)
{
	return tsr_step_square(gradient_at(grad, dtype, i));
}

template <int N> static __device__ __forceinline__ unsigned count_nonfinite(const float *g)
{
	unsigned nonfinite = 0;

#pragma unroll
	for (int k = 0; k < N; k++)
		nonfinite += is_nonfinite(g[k]);
	return nonfinite;
}

#endif
