/* SPDX-License-Identifier: Apache-2.0 */
/* A step in one pass of any states, by the formulas of the CPU. */
#ifndef TSR_GPU_STEP_TILE_CUH
#define TSR_GPU_STEP_TILE_CUH

#include "gpu/step/step_rules.cuh"

/*
 * Decode, step, encode: each byte of state moved once each way.  Called by all threads of a warp,
 * since those that have a group talk to each other; loads and stores if @inside.
 */
template <class states, int N>
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
	run_rule<states::nstates, N>(a, g, w, m, v);
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

#endif
