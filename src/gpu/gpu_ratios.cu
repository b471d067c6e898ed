/* SPDX-License-Identifier: Apache-2.0 */
/* Momenta as ratios to the roots of their variances, and back. */
#include "codec/ratio_math.h"
#include "gpu/cuda.h"
#include "gpu/vector.cuh"

/* A thread has an element; @to may be @from. */
static __global__ void __launch_bounds__(TSR_BLOCK)
	turn_ratios(const float *from, const float *variance, float eps, bool make, uint64_t n,
		    float *to)
{
	const uint64_t i = tsr_first_vector(1);

	if (i < n) {
		const float divisor = tsr_ratio_divisor(tsr_sqrt(variance[i]), eps);

		to[i] = make ? tsr_ratio_of(from[i], divisor)
			     : tsr_ratio_momentum(from[i], divisor);
	}
}

extern "C" enum tsr_status tsr_gpu_turn_ratios(struct tsr_gpu_stream *stream, float eps,
					       const float *from, const float *variance, uint64_t n,
					       bool make, float *to, struct tsr_err *err)
{
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	if (n)
		turn_ratios<<<tsr_blocks(n, 1), TSR_BLOCK, 0, stream->handle>>>(from, variance, eps,
										make, n, to);
	return tsr_gpu_started(stream->gpu, make ? "making ratios" : "undoing ratios", "", err);
}
