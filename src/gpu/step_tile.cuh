/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_GPU_STEP_TILE_CUH
#define TSR_GPU_STEP_TILE_CUH

/* A step of the N elements of a thread, whatever they are. */
#include "gpu/step_rules.cuh"

/*
 * Decode, step, encode: each byte of state moved once each way.  Called by all threads of a warp,
 * since those that have a group talk to each other; loads and stores if @inside.
 */
template <int NSTATES, class momentum, class variance, int N>
static __device__ __forceinline__ void step_tile(const struct step_args *a, uint64_t tile,
						 bool inside)
{
	float g[N] = {}, w[N] = {}, m[N] = {}, v[N] = {};
	unsigned nonfinite = 0, overflow = 0;
	bool roots;
	struct tsr_encode_report *report = a->report ? a->report->encode : NULL;

	if (inside) {
		load_gradients<N>(a, tile, g);
		nonfinite = count_nonfinite<N>(g);
		load_weights<N>(a, tile, w);
		momentum::template load<N>(&a->part[TSR_PART_MOMENTUM], tile, m);
		variance::template load<N>(&a->part[TSR_PART_VARIANCE], tile, v);
	}
	roots = run_rule<NSTATES, variance::takes_roots, N>(a, inside, g, w, m, v);
	if (inside)
		overflow = store_weights<N>(a, tile, w);
	momentum::template store<N>(&a->part[TSR_PART_MOMENTUM], tile, inside, m, false,
				    report ? &report[TSR_PART_MOMENTUM] : NULL);
	variance::template store<N>(&a->part[TSR_PART_VARIANCE], tile, inside, v, roots,
				    report ? &report[TSR_PART_VARIANCE] : NULL);
	if (a->report) {
		tsr_add_count(&a->report->nonfinite_grad, nonfinite);
		tsr_add_count(&report[TSR_PART_WEIGHT].narrow_overflow, overflow);
	}
}

#endif
