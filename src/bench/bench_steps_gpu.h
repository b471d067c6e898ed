/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of optimizer steps on a GPU, in device time. */
#ifndef TSR_BENCH_STEPS_GPU_H
#define TSR_BENCH_STEPS_GPU_H

#include "bench/bench.h"
#include "bench/bench_timing_gpu.h"

/*
 * Measure the steps of tsr_bench_step_cases on @n elements, with @values and their @squares in
 * device memory; allocates 16 bytes per element on the GPU.
 */
enum tsr_status tsr_bench_steps_gpu(const struct tsr_bench_gpu *on, const float *values,
				    const float *squares, uint64_t n, struct tsr_bench_kernels *ret,
				    struct tsr_err *err);

#endif
