/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_BENCH_STEPS_GPU_H
#define TSR_BENCH_STEPS_GPU_H

#include "bench/bench.h"
#include "gpu/gpu_work.h"

/* What measurements on a GPU need; all of it is the caller's. */
struct tsr_bench_gpu {
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *stream;
	struct tsr_gpu_event *start, *stop;
	const float *values, *squares; /* @n each, in device memory */
	uint64_t n;
	unsigned repeats;
	double *seconds; /* room for @repeats */
	const struct tsr_run *run;
};

/* Measure the steps of tsr_bench_step_cases; allocates 16 bytes per element on the GPU. */
enum tsr_status tsr_bench_steps_gpu(const struct tsr_bench_gpu *on, struct tsr_bench_kernels *ret,
				    struct tsr_err *err);

#endif
