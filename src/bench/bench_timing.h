/* SPDX-License-Identifier: Apache-2.0 */
/* How benchmarks are timed, and the values they run on. */
#ifndef TSR_BENCH_TIMING_H
#define TSR_BENCH_TIMING_H

#include <stddef.h>
#include <stdint.h>

#include "base/pipeline.h"
#include "tersor/status.h"

/* Elements that one job covers: a multiple of every power-of-two group. */
#define TSR_BENCH_TILE (UINT64_C(1) << 18)

/* Jobs of @n elements, and elements of the one that begins at @first. */
uint64_t tsr_bench_njobs(uint64_t n);
size_t tsr_bench_tile(uint64_t n, uint64_t first);

/* Median seconds of @repeats runs of a pipeline, after one that does not count. */
enum tsr_status tsr_bench_time(const struct tsr_pipeline *p, unsigned repeats,
			       const struct tsr_run *run, double *seconds_ret, struct tsr_err *err);

/* The median; sorts the array. */
double tsr_bench_median(double *seconds, unsigned n);

/* Report that @done of @total runs are done; TSR_E_CANCELLED if the caller wants to stop. */
enum tsr_status tsr_bench_progress(const struct tsr_run *run, unsigned done, unsigned total,
				   struct tsr_err *err);

/* @n positive values spread like those of trained state: uniform times uniform, from a seed. */
void tsr_bench_values(float *x, size_t n, uint64_t seed);

#endif
