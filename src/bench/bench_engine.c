/* SPDX-License-Identifier: Apache-2.0 */
/* What measurements in memory share: arrays and timed runs, on the CPU or on a GPU. */
#include "bench/bench_engine.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/isa.h"
#include "base/order.h"

#define SPARE UINT64_C(256)

static enum tsr_status open_gpu(struct tsr_bench_engine *e, unsigned index, struct tsr_bench *ret,
				struct tsr_err *err)
{
	const int prefix = snprintf(ret->device, sizeof(ret->device), "cuda:%u, ", index);

	TSR_TRY(tsr_gpu_open(index, &e->gpu, err));
	TSR_TRY(tsr_gpu_stream_new(e->gpu, &e->stream, err));
	TSR_TRY(tsr_gpu_event_new(e->gpu, &e->start, err));
	TSR_TRY(tsr_gpu_event_new(e->gpu, &e->stop, err));
	return tsr_gpu_describe(index, ret->device + prefix, sizeof(ret->device) - (size_t)prefix,
				err);
}

enum tsr_status tsr_bench_open(struct tsr_bench_engine *e, const struct tsr_bench_options *o,
			       const struct tsr_run *run, struct tsr_bench *ret,
			       struct tsr_err *err)
{
	*e = (struct tsr_bench_engine){ .run = run, .repeats = (unsigned)o->repeats };
	*ret = (struct tsr_bench){ .device = "cpu" };
	TSR_TRY(TSR_NEW(&e->seconds, o->repeats, err, "timings"));
	if (o->gpu)
		return open_gpu(e, *o->gpu, ret, err);
	ret->threads = tsr_run_threads(run);
	ret->isa = tsr_isa_name();
	return TSR_OK;
}

void tsr_bench_close(struct tsr_bench_engine *e)
{
	tsr_bench_free_arrays(e);
	tsr_gpu_stream_free(e->stream);
	tsr_gpu_event_free(e->start);
	tsr_gpu_event_free(e->stop);
	tsr_gpu_close(e->gpu);
	free(e->seconds);
}

/* --- Arrays ---------------------------------------------------------------------------------- */

enum tsr_status tsr_bench_alloc(struct tsr_bench_engine *e, uint64_t nbytes, void *array_ret,
				struct tsr_err *err)
{
	void *array = NULL;

	if (e->gpu)
		TSR_TRY(tsr_gpu_alloc(e->gpu, nbytes + SPARE, "a benchmark's arrays", &array, err));
	else
		array = malloc(nbytes + SPARE);
	if (!array)
		return tsr_fail_nomem(err, "a benchmark's arrays");
	e->arrays[e->narrays++] = array;
	memcpy(array_ret, &array, sizeof(array));
	return TSR_OK;
}

void tsr_bench_free_arrays(struct tsr_bench_engine *e)
{
	while (e->narrays) {
		void *array = e->arrays[--e->narrays];

		if (e->gpu)
			tsr_gpu_free(e->gpu, array);
		else
			free(array);
	}
}

enum tsr_status tsr_bench_put(const struct tsr_bench_engine *e, void *array, const void *from,
			      uint64_t nbytes, struct tsr_err *err)
{
	if (!e->gpu) {
		memcpy(array, from, nbytes);
		return TSR_OK;
	}
	TSR_TRY(tsr_gpu_copy(e->stream, array, from, nbytes, err));
	return tsr_gpu_sync(e->stream, err);
}

enum tsr_status tsr_bench_get(const struct tsr_bench_engine *e, void *to, const void *array,
			      uint64_t nbytes, struct tsr_err *err)
{
	if (!e->gpu) {
		memcpy(to, array, nbytes);
		return TSR_OK;
	}
	TSR_TRY(tsr_gpu_copy(e->stream, to, array, nbytes, err));
	return tsr_gpu_sync(e->stream, err);
}

/* --- Runs ------------------------------------------------------------------------------------ */

enum tsr_status tsr_bench_run(const struct tsr_bench_engine *e, const struct tsr_bench_work *work,
			      struct tsr_err *err)
{
	if (!e->gpu)
		return tsr_pipeline_run(&work->cpu, e->run, err);
	TSR_TRY(work->append(work->cpu.ctx, err));
	return tsr_gpu_sync(e->stream, err);
}

/* Seconds of a run: of the clock, or of the device between two events. */
static enum tsr_status time_run(const struct tsr_bench_engine *e, const struct tsr_bench_work *work,
				double *seconds_ret, struct tsr_err *err)
{
	const double started = tsr_seconds();

	if (e->gpu) {
		TSR_TRY(tsr_gpu_record(e->stream, e->start, err));
		TSR_TRY(work->append(work->cpu.ctx, err));
		TSR_TRY(tsr_gpu_record(e->stream, e->stop, err));
		return tsr_gpu_seconds(e->start, e->stop, seconds_ret, err);
	}
	TSR_TRY(tsr_pipeline_run(&work->cpu, e->run, err));
	*seconds_ret = tsr_seconds() - started;
	return TSR_OK;
}

enum tsr_status tsr_bench_time(const struct tsr_bench_engine *e, const struct tsr_bench_work *work,
			       double *seconds_ret, struct tsr_err *err)
{
	const unsigned warm_ups = e->gpu ? 3 : 1;

	for (unsigned i = 0; i < warm_ups; i++)
		TSR_TRY(tsr_bench_run(e, work, err));
	for (unsigned i = 0; i < e->repeats; i++) {
		TSR_TRY(time_run(e, work, &e->seconds[i], err));
		if (e->run->progress && !e->run->progress(e->run->ctx, i + 1, e->repeats))
			return tsr_fail(err, TSR_E_CANCELLED, "benchmark: cancelled");
	}
	*seconds_ret = tsr_bench_median(e->seconds, e->repeats);
	return TSR_OK;
}

TSR_COMPARE(ascending, double, TSR_ORDER(*a, *b))

double tsr_bench_median(double *seconds, unsigned n)
{
	qsort(seconds, n, sizeof(*seconds), ascending);
	return seconds[n / 2];
}

struct tsr_bench_row *tsr_bench_add(struct tsr_bench *ret, enum tsr_bench_table table,
				    const char *name)
{
	struct tsr_bench_row *row = &ret->rows[ret->nrows++];

	*row = (struct tsr_bench_row){ .table = table, .name = name };
	return row;
}

/* --- Values ---------------------------------------------------------------------------------- */

/* About normal: the sum of four uniform numbers. */
static float noise(uint64_t *state)
{
	int sum = 0;

	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	for (unsigned i = 0; i < 4; i++)
		sum += (int)(uint16_t)(*state >> 16 * i) - 32768;
	return (float)sum * (1.7f / 65536);
}

void tsr_bench_values(enum tsr_kind kind, uint64_t first, size_t n, float *x)
{
	uint64_t state = 0, columns = 0;
	float row = 0;

	for (size_t i = 0; i < n; i++) {
		float root, scatter;

		if (i % TSR_BENCH_COLUMNS == 0) {
			state = first + i + 1;
			columns = 1;
			row = 1e-4f * expf(noise(&state));
		}
		if (kind == TSR_KIND_WEIGHT) {
			x[i] = 0.02f * noise(&state);
			continue;
		}
		root = row * expf(0.4f * noise(&columns) + 0.4f * noise(&state));
		scatter = noise(&state);
		x[i] = kind == TSR_KIND_MOMENTUM ? root * scatter : root * root;
	}
}
