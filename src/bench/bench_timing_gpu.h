/* SPDX-License-Identifier: Apache-2.0 */
/* How benchmarks are timed on a GPU: in device time. */
#ifndef TSR_BENCH_TIMING_GPU_H
#define TSR_BENCH_TIMING_GPU_H

#include "gpu/gpu_work.h"
#include "tersor/run.h"

/* What measurements on a GPU need. */
struct tsr_bench_gpu {
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *stream;
	struct tsr_gpu_event *start, *stop;
	double *seconds; /* room for @repeats */
	unsigned repeats;
	const struct tsr_run *run;
};

/* Open GPU @index; after a failure, too, close it with tsr_bench_gpu_close(). */
enum tsr_status tsr_bench_gpu_open(struct tsr_bench_gpu *on, unsigned index, unsigned repeats,
				   const struct tsr_run *run, struct tsr_err *err);
void tsr_bench_gpu_close(struct tsr_bench_gpu *on);

/* Median seconds of the work that @append puts on the stream, after runs that do not count. */
enum tsr_status tsr_bench_time_gpu(const struct tsr_bench_gpu *on,
				   enum tsr_status (*append)(void *ctx, struct tsr_err *err),
				   void *ctx, double *seconds_ret, struct tsr_err *err);

#endif
