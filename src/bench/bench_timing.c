/* SPDX-License-Identifier: Apache-2.0 */
/* How benchmarks are timed, and the values they run on. */
#include "bench/bench_timing.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/fail.h"

uint64_t tsr_bench_njobs(uint64_t n)
{
	return (n + TSR_BENCH_TILE - 1) / TSR_BENCH_TILE;
}

size_t tsr_bench_tile(uint64_t n, uint64_t first)
{
	return (size_t)(n - first < TSR_BENCH_TILE ? n - first : TSR_BENCH_TILE);
}

static int ascending(const void *va, const void *vb)
{
	const double a = *(const double *)va, b = *(const double *)vb;

	return a < b ? -1 : a > b;
}

double tsr_bench_median(double *seconds, unsigned n)
{
	qsort(seconds, n, sizeof(*seconds), ascending);
	return seconds[n / 2];
}

enum tsr_status tsr_bench_progress(const struct tsr_run *run, unsigned done, unsigned total,
				   struct tsr_err *err)
{
	if (!run->progress || run->progress(run->ctx, done, total))
		return TSR_OK;
	return tsr_fail(err, TSR_E_CANCELLED, "benchmark: cancelled");
}

enum tsr_status tsr_bench_time(const struct tsr_pipeline *p, unsigned repeats,
			       const struct tsr_run *run, double *seconds_ret, struct tsr_err *err)
{
	double *seconds = calloc(repeats, sizeof(*seconds));
	enum tsr_status status = TSR_OK;

	if (!seconds)
		return tsr_fail_nomem(err, "timings");
	for (unsigned i = 0; i <= repeats && status == TSR_OK; i++) {
		const double start = tsr_seconds();

		status = tsr_pipeline_run(p, run, err);
		if (i)
			seconds[i - 1] = tsr_seconds() - start;
		if (status == TSR_OK)
			status = tsr_bench_progress(run, i, repeats, err);
	}
	*seconds_ret = tsr_bench_median(seconds, repeats);
	free(seconds);
	return status;
}

void tsr_bench_values(float *x, size_t n, uint64_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (size_t i = 0; i < n; i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		x[i] = (float)(state >> 48) * (float)(uint16_t)(state >> 32) * 0x1p-32f * 1e-3f;
	}
}
