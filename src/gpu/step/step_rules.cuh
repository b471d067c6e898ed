/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of step_math.h on the elements of a thread. */
#ifndef TSR_GPU_STEP_RULES_CUH
#define TSR_GPU_STEP_RULES_CUH

#include "gpu/step/gpu_step.cuh"
#include "step/torch_math.h"

/*
 * The formulas of step_math.h on N elements: a kernel for a number of states has the rules that have as
 * many, one for ANY_STATES all.  For the latter: @max, the largest variances; @first, which element of its
 * tensor the first one is.
 */
template <int NSTATES, int N>
static __device__ __forceinline__ void run_rule(const struct step_args *a, const float *g, float *w,
						float *m, float *v, float *max = NULL,
						uint64_t first = 0)
{
	if constexpr (NSTATES != ANY_STATES)
		__builtin_assume(!a->scalars.amsgrad);
	switch (a->rule) {
#define X(id, formula, nstates, fused) \
	case TSR_RULE_##id: \
		if constexpr (NSTATES == ANY_STATES || (fused && NSTATES == nstates)) { \
			_Pragma("unroll") for (int k = 0; k < N; k++) \
			{ \
				const struct tsr_step_values x = tsr_step_##formula( \
					&a->scalars, g[k], \
					{ w[k], m[k], v[k], max ? max[k] : 0.0f, first + k }); \
\
				w[k] = x.weight; \
				m[k] = x.momentum; \
				v[k] = x.variance; \
				if constexpr (NSTATES == ANY_STATES) \
					max[k] = x.max_variance; \
			} \
		} \
		break;
		TSR_STEP_RULES(X)
#undef X
	}
}

#endif
