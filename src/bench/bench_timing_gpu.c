/* SPDX-License-Identifier: Apache-2.0 */
/* How benchmarks are timed on a GPU: in device time. */
#include "bench/bench_timing_gpu.h"

#include <stdlib.h>

#include "base/fail.h"
#include "bench/bench_timing.h"

#define WARM_UPS 3u

enum tsr_status tsr_bench_gpu_open(struct tsr_bench_gpu *on, unsigned index, unsigned repeats,
				   const struct tsr_run *run, struct tsr_err *err)
{
	*on = (struct tsr_bench_gpu){ .repeats = repeats, .run = run };
	on->seconds = calloc(repeats, sizeof(*on->seconds));
	if (!on->seconds)
		return tsr_fail_nomem(err, "timings");
	TSR_TRY(tsr_gpu_open(index, &on->gpu, err));
	TSR_TRY(tsr_gpu_stream_new(on->gpu, &on->stream, err));
	TSR_TRY(tsr_gpu_event_new(on->gpu, &on->start, err));
	return tsr_gpu_event_new(on->gpu, &on->stop, err);
}

void tsr_bench_gpu_close(struct tsr_bench_gpu *on)
{
	tsr_gpu_stream_free(on->stream);
	tsr_gpu_event_free(on->start);
	tsr_gpu_event_free(on->stop);
	tsr_gpu_close(on->gpu);
	free(on->seconds);
}

enum tsr_status tsr_bench_time_gpu(const struct tsr_bench_gpu *on,
				   enum tsr_status (*append)(void *ctx, struct tsr_err *err),
				   void *ctx, double *seconds_ret, struct tsr_err *err)
{
	for (unsigned i = 0; i < WARM_UPS; i++)
		TSR_TRY(append(ctx, err));
	for (unsigned i = 0; i < on->repeats; i++) {
		TSR_TRY(tsr_gpu_record(on->stream, on->start, err));
		TSR_TRY(append(ctx, err));
		TSR_TRY(tsr_gpu_record(on->stream, on->stop, err));
		TSR_TRY(tsr_gpu_seconds(on->start, on->stop, &on->seconds[i], err));
		TSR_TRY(tsr_bench_progress(on->run, i + 1, on->repeats, err));
	}
	*seconds_ret = tsr_bench_median(on->seconds, on->repeats);
	return TSR_OK;
}
