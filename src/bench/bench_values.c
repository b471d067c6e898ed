/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench_values.h"

void tsr_bench_values(float *x, size_t n, uint64_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (size_t i = 0; i < n; i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		x[i] = (float)(state >> 48) * (float)(uint16_t)(state >> 32) * 0x1p-32f * 1e-3f;
	}
}
