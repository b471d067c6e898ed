/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of codecs on a GPU, in device time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "bench/bench.h"
#include "bench/bench_steps_gpu.h"
#include "bench/bench_timing.h"
#include "tersor/codec.h"
#include "gpu/gpu_work.h"

#define WARM_UPS 3u

/* Values that are made on the CPU; the rest of the array repeats them. */
#define PATTERN_ELEMENTS (UINT64_C(1) << 24)

enum action { COPY, ENCODE, DECODE };

struct bench {
	uint64_t n;
	unsigned repeats;
	const struct tsr_run *run;
	struct tsr_gpu *gpu;
	struct tsr_gpu_stream *stream;
	struct tsr_gpu_event *start, *stop;
	float *x, *y; /* in device memory, as the planes */
	void *plane[TSR_PLANES_MAX];
	double *seconds;
};

static enum tsr_status append(struct bench *b, enum action action, const struct tsr_coding *coding,
			      struct tsr_err *err)
{
	if (action == ENCODE)
		return tsr_gpu_encode(b->stream, coding, b->x, b->n, b->plane, NULL, err);
	if (action == DECODE)
		return tsr_gpu_decode(b->stream, coding, (const void *const *)b->plane, b->n, b->y,
				      err);
	return tsr_gpu_copy(b->stream, b->y, b->x, b->n * sizeof(float), err);
}

/* Median seconds of one action, after some that do not count. */
static enum tsr_status measure(struct bench *b, enum action action, const struct tsr_coding *coding,
			       double *seconds_ret, struct tsr_err *err)
{
	for (unsigned i = 0; i < WARM_UPS; i++)
		TSR_TRY(append(b, action, coding, err));
	for (unsigned i = 0; i < b->repeats; i++) {
		TSR_TRY(tsr_gpu_record(b->stream, b->start, err));
		TSR_TRY(append(b, action, coding, err));
		TSR_TRY(tsr_gpu_record(b->stream, b->stop, err));
		TSR_TRY(tsr_gpu_seconds(b->start, b->stop, &b->seconds[i], err));
		TSR_TRY(tsr_bench_progress(b->run, i + 1, b->repeats, err));
	}
	*seconds_ret = tsr_bench_median(b->seconds, b->repeats);
	return TSR_OK;
}

static enum tsr_status measure_codec(struct bench *b, const struct tsr_codec *codec,
				     struct tsr_bench_kernel *k, struct tsr_err *err)
{
	const struct tsr_coding coding = tsr_coding_default(codec);
	double encode, decode, gigabytes;

	TSR_TRY(measure(b, ENCODE, &coding, &encode, err));
	TSR_TRY(measure(b, DECODE, &coding, &decode, err));
	k->name = codec->name;
	k->bytes_per_element = sizeof(float) + tsr_coding_bytes_per_element(&coding);
	gigabytes = 1e-9 * (double)b->n * k->bytes_per_element;
	k->encode_gbps = gigabytes / encode;
	k->decode_gbps = gigabytes / decode;
	return TSR_OK;
}

/* Fill @to, with squares if @square, on the GPU; the CPU would take longer than all measurements. */
static enum tsr_status fill(struct bench *b, float *to, bool square, struct tsr_err *err)
{
	const uint64_t made = b->n < PATTERN_ELEMENTS ? b->n : PATTERN_ELEMENTS;
	float *values = malloc(made * sizeof(*values));
	enum tsr_status status;

	if (!values)
		return tsr_fail_nomem(err, "benchmark values");
	tsr_bench_values(values, made, 1);
	for (uint64_t i = 0; square && i < made; i++)
		values[i] *= values[i];
	status = tsr_gpu_put(b->stream, to, values, made * sizeof(*values), err);
	for (uint64_t have = made; have < b->n && status == TSR_OK; have *= 2)
		status = tsr_gpu_copy(b->stream, to + have, to,
				      (b->n - have < have ? b->n - have : have) * sizeof(float),
				      err);
	if (status == TSR_OK)
		status = tsr_gpu_sync(b->stream, err);
	free(values);
	return status;
}

/* Without a choice: of a family only those with 8 extra bits. */
static bool is_wanted(const struct tsr_codec *codec, const char *name)
{
	if (name)
		return strcmp(name, codec->name) == 0;
	return tsr_gpu_has_codec(codec) && (!codec->family || codec->extra_bits == 8);
}

/* The largest that a plane is with any codec that is measured. */
static uint64_t plane_nbytes(const char *name, unsigned plane, uint64_t n)
{
	uint64_t most = 0;

	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		const struct tsr_coding coding = tsr_coding_default(*c);

		if (is_wanted(*c, name) && plane < (*c)->nplanes &&
		    tsr_plane_nbytes(&coding, plane, n) > most)
			most = tsr_plane_nbytes(&coding, plane, n);
	}
	return most;
}

static enum tsr_status prepare(struct bench *b, unsigned index, const char *codec,
			       struct tsr_err *err)
{
	const uint64_t nbytes = b->n * sizeof(float);

	b->seconds = calloc(b->repeats, sizeof(*b->seconds));
	if (!b->seconds)
		return tsr_fail_nomem(err, "timings");
	TSR_TRY(tsr_gpu_open(index, &b->gpu, err));
	TSR_TRY(tsr_gpu_stream_new(b->gpu, &b->stream, err));
	TSR_TRY(tsr_gpu_event_new(b->gpu, &b->start, err));
	TSR_TRY(tsr_gpu_event_new(b->gpu, &b->stop, err));
	TSR_TRY(tsr_gpu_alloc(b->gpu, nbytes, "benchmark arrays", (void **)&b->x, err));
	TSR_TRY(tsr_gpu_alloc(b->gpu, nbytes, "benchmark arrays", (void **)&b->y, err));
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		TSR_TRY(tsr_gpu_alloc(b->gpu, plane_nbytes(codec, i, b->n), "benchmark arrays",
				      &b->plane[i], err));
	return fill(b, b->x, false, err);
}

static void clean_up(struct bench *b)
{
	tsr_gpu_stream_free(b->stream);
	tsr_gpu_event_free(b->start);
	tsr_gpu_event_free(b->stop);
	tsr_gpu_free(b->gpu, b->x);
	tsr_gpu_free(b->gpu, b->y);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		tsr_gpu_free(b->gpu, b->plane[i]);
	tsr_gpu_close(b->gpu);
	free(b->seconds);
}

static enum tsr_status run_steps(struct bench *b, struct tsr_bench_kernels *r, struct tsr_err *err)
{
	const struct tsr_bench_gpu on = { .gpu = b->gpu,
					  .stream = b->stream,
					  .start = b->start,
					  .stop = b->stop,
					  .values = b->x,
					  .squares = b->y,
					  .n = b->n,
					  .repeats = b->repeats,
					  .seconds = b->seconds,
					  .run = b->run };

	TSR_TRY(fill(b, b->y, true, err));
	return tsr_bench_steps_gpu(&on, r, err);
}

static enum tsr_status run_bench(struct bench *b, const char *codec, struct tsr_bench_kernels *r,
				 struct tsr_err *err)
{
	double seconds;

	TSR_TRY(measure(b, COPY, NULL, &seconds, err));
	r->copy_gbps = 1e-9 * (double)b->n * 2 * sizeof(float) / seconds;
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (is_wanted(*c, codec))
			TSR_TRY(measure_codec(b, *c, &r->kernels[r->nkernels++], err));
	}
	return codec ? TSR_OK : run_steps(b, r, err);
}

enum tsr_status tsr_bench_kernels_gpu(unsigned index, const char *codec, uint64_t elements,
				      unsigned repeats, const struct tsr_run *run,
				      struct tsr_bench_kernels *ret, struct tsr_err *err)
{
	struct bench b = { .n = elements, .repeats = repeats, .run = run };
	enum tsr_status status;
	int prefix;

	*ret = (struct tsr_bench_kernels){ 0 };
	prefix = snprintf(ret->device, sizeof(ret->device), "cuda:%u, ", index);
	status = prepare(&b, index, codec, err);
	if (status == TSR_OK)
		status = tsr_gpu_describe(index, ret->device + prefix,
					  sizeof(ret->device) - (size_t)prefix, err);
	if (status == TSR_OK)
		status = run_bench(&b, codec, ret, err);
	clean_up(&b);
	return status;
}
