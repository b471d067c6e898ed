/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of codecs on a GPU, in device time. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "bench/bench_kernels.h"
#include "bench/bench_steps.h"
#include "bench/bench_timing.h"
#include "bench/bench_timing_gpu.h"

/* Values generated on the CPU; the rest of the array repeats them. */
#define PATTERN_ELEMENTS (UINT64_C(1) << 24)

enum action { COPY, ENCODE, DECODE };

struct bench {
	struct tsr_bench_gpu on;
	uint64_t n;
	float *x, *y; /* in device memory, like the planes */
	void *plane[TSR_PLANES_MAX];
	enum action action;
	struct tsr_coding coding;
};

static enum tsr_status append(void *ctx, struct tsr_err *err)
{
	struct bench *b = ctx;
	struct tsr_gpu_stream *stream = b->on.stream;

	if (b->action == ENCODE)
		return tsr_gpu_encode(stream, &b->coding, b->x, b->n, b->plane, NULL, err);
	if (b->action == DECODE)
		return tsr_gpu_decode(stream, &b->coding, (const void *const *)b->plane, b->n, b->y,
				      err);
	return tsr_gpu_copy(stream, b->y, b->x, b->n * sizeof(float), err);
}

static enum tsr_status measure(struct bench *b, enum action action, double *seconds_ret,
			       struct tsr_err *err)
{
	b->action = action;
	return tsr_bench_time_gpu(&b->on, append, b, seconds_ret, err);
}

static enum tsr_status measure_codec(struct bench *b, const struct tsr_codec *codec,
				     struct tsr_bench_kernel *k, struct tsr_err *err)
{
	double encode, decode;

	b->coding = tsr_coding_default(codec);
	TSR_TRY(measure(b, ENCODE, &encode, err));
	TSR_TRY(measure(b, DECODE, &decode, err));
	tsr_bench_set_kernel(k, &b->coding, b->n, encode, decode);
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
	status = tsr_gpu_put(b->on.stream, to, values, made * sizeof(*values), err);
	for (uint64_t have = made; have < b->n && status == TSR_OK; have *= 2)
		status = tsr_gpu_copy(b->on.stream, to + have, to,
				      (b->n - have < have ? b->n - have : have) * sizeof(float),
				      err);
	if (status == TSR_OK)
		status = tsr_gpu_sync(b->on.stream, err);
	free(values);
	return status;
}

static bool is_wanted(const struct tsr_codec *codec, const char *choice)
{
	return tsr_bench_wants(codec, choice) && (choice || tsr_gpu_has_codec(codec));
}

/* Bytes of a plane, the most of any codec that is measured. */
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

static enum tsr_status prepare(struct bench *b, const char *codec, struct tsr_err *err)
{
	const uint64_t nbytes = b->n * sizeof(float);

	TSR_TRY(tsr_gpu_alloc(b->on.gpu, nbytes, "benchmark arrays", (void **)&b->x, err));
	TSR_TRY(tsr_gpu_alloc(b->on.gpu, nbytes, "benchmark arrays", (void **)&b->y, err));
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		TSR_TRY(tsr_gpu_alloc(b->on.gpu, plane_nbytes(codec, i, b->n), "benchmark arrays",
				      &b->plane[i], err));
	return fill(b, b->x, false, err);
}

static void clean_up(struct bench *b)
{
	tsr_gpu_free(b->on.gpu, b->x);
	tsr_gpu_free(b->on.gpu, b->y);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		tsr_gpu_free(b->on.gpu, b->plane[i]);
	tsr_bench_gpu_close(&b->on);
}

static enum tsr_status run_bench(struct bench *b, const char *codec, struct tsr_bench_kernels *r,
				 struct tsr_err *err)
{
	double seconds;

	TSR_TRY(measure(b, COPY, &seconds, err));
	r->copy_gbps = 1e-9 * (double)b->n * 2 * sizeof(float) / seconds;
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (is_wanted(*c, codec))
			TSR_TRY(measure_codec(b, *c, &r->kernels[r->nkernels++], err));
	}
	if (codec)
		return TSR_OK;
	TSR_TRY(fill(b, b->y, true, err));
	return tsr_bench_steps_gpu(&b->on, b->x, b->y, b->n, r, err);
}

enum tsr_status tsr_bench_kernels_gpu(unsigned index, const char *codec, uint64_t elements,
				      unsigned repeats, const struct tsr_run *run,
				      struct tsr_bench_kernels *ret, struct tsr_err *err)
{
	struct bench b = { .n = elements };
	enum tsr_status status;
	int prefix;

	*ret = (struct tsr_bench_kernels){ 0 };
	prefix = snprintf(ret->device, sizeof(ret->device), "cuda:%u, ", index);
	status = tsr_bench_gpu_open(&b.on, index, repeats, run, err);
	if (status == TSR_OK)
		status = prepare(&b, codec, err);
	if (status == TSR_OK)
		status = tsr_gpu_describe(index, ret->device + prefix,
					  sizeof(ret->device) - (size_t)prefix, err);
	if (status == TSR_OK)
		status = run_bench(&b, codec, ret, err);
	clean_up(&b);
	return status;
}
