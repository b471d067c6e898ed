/* SPDX-License-Identifier: Apache-2.0 */
/* A step in one pass of any states, by the formulas of the CPU. */
#ifndef TSR_GPU_STEP_TILE_CUH
#define TSR_GPU_STEP_TILE_CUH

#include "codec/ratio_math.h"
#include "gpu/step/step_rules.cuh"

/* Momenta become ratios to their variances, or without MAKE the reverse. */
template <bool MAKE, int N, int UNROLL>
static __device__ __forceinline__ void turn_tile(float eps, float *m, const float *v)
{
#pragma unroll UNROLL
	for (int k = 0; k < N; k++) {
		const float divisor = tsr_ratio_divisor(tsr_sqrt(v[k]), eps);

		m[k] = MAKE ? tsr_ratio_of(m[k], divisor) : tsr_ratio_momentum(m[k], divisor);
	}
}

/*
 * Decode, step, encode: each byte of state moved once each way.  Called by all threads of a warp,
 * since those that have a group talk to each other; loads and stores if @inside.
 */
template <class states, int N, int UNROLL = N>
static __device__ __forceinline__ void step_tile(const struct step_args *a, uint64_t tile,
						 bool inside)
{
	struct tsr_encode_report *report = a->report ? a->report->encode : NULL;
	float g[N] = {}, w[N] = {}, m[N] = {}, v[N] = {};
	unsigned nonfinite = 0, overflow = 0;

	if (inside) {
		load_gradients<N>(a->grad, a->grad_dtype, tile, g);
		nonfinite = count_nonfinite<N>(g);
		load_weights<N>(a, tile, w);
		states::momentum::template load<N>(a->slot[TSR_SLOT_MOMENTUM], tile, m);
		states::variance::template load<N>(a->slot[TSR_SLOT_VARIANCE], tile, v);
	}
	if (states::ratios)
		turn_tile<false, N, UNROLL>(a->eps, m, v);
	run_rule<states::nstates, N, UNROLL>(a, g, w, m, v);
	if (states::ratios)
		turn_tile<true, N, UNROLL>(a->eps, m, v);
	if (inside)
		overflow = store_weights<N>(a, tile, w);
	states::momentum::template store<N>(a->slot[TSR_SLOT_MOMENTUM], tile, inside, m,
					    report ? &report[TSR_SLOT_MOMENTUM] : NULL);
	states::variance::template store<N>(a->slot[TSR_SLOT_VARIANCE], tile, inside, v,
					    report ? &report[TSR_SLOT_VARIANCE] : NULL);
	if (a->report) {
		tsr_add_count(&a->report->nonfinite_grad, nonfinite);
		tsr_add_count(&report[TSR_SLOT_WEIGHT].narrow_overflow, overflow);
	}
}

/* Not a part of fast kernels: their registers are for the elements that are ordinary. */
template <class states, int N, int UNROLL>
static __device__ __noinline__ void step_any(const struct step_args *a, uint64_t tile, bool inside)
{
	step_tile<states, N, UNROLL>(a, tile, inside);
}

#endif
