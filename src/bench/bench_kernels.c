/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the codecs are in memory. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "base/pipeline.h"
#include "bench/bench.h"
#include "bench/bench_steps.h"
#include "bench/bench_values.h"
#include "tersor/codec.h"

/* Elements that one job covers: a multiple of every power-of-two group. */
#define JOB_ELEMENTS (UINT64_C(1) << 18)

enum action { FILL, COPY, ENCODE, DECODE };

struct bench {
	uint64_t n;
	float *x, *y;
	unsigned char *plane[TSR_PLANES_MAX];
	struct tsr_coding coding;
	enum action action;
};

double tsr_bench_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
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

static enum tsr_status do_job(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct bench *b = ctx;
	const uint64_t first = job * JOB_ELEMENTS, left = b->n - first;
	const size_t n = (size_t)(left < JOB_ELEMENTS ? left : JOB_ELEMENTS);
	struct tsr_encode_report report = { 0 };
	void *out[TSR_PLANES_MAX];
	const void *in[TSR_PLANES_MAX];

	(void)scratch;
	(void)err;
	for (unsigned i = 0; b->coding.codec && i < b->coding.codec->nplanes; i++)
		in[i] = out[i] = b->plane[i] + tsr_plane_nbytes(&b->coding, i, first);
	switch (b->action) {
	case FILL:
		tsr_bench_values(b->x + first, n, job);
		break;
	case COPY:
		memcpy(b->y + first, b->x + first, n * sizeof(float));
		break;
	case ENCODE:
		b->coding.codec->encode(&b->coding, b->x + first, n, out, &report);
		break;
	case DECODE:
		b->coding.codec->decode(&b->coding, in, n, b->y + first);
		break;
	}
	return TSR_OK;
}

/* Median seconds of `repeats` runs of one action, after one that does not count. */
static enum tsr_status measure(struct bench *b, enum action action, unsigned repeats,
			       const struct tsr_run *run, double *seconds_ret, struct tsr_err *err)
{
	const struct tsr_pipeline p = { .njobs = (b->n + JOB_ELEMENTS - 1) / JOB_ELEMENTS,
					.work = do_job,
					.ctx = b };
	double *seconds = calloc(repeats, sizeof(*seconds));
	enum tsr_status status = TSR_OK;

	if (!seconds)
		return tsr_fail_nomem(err, "timings");
	b->action = action;
	for (unsigned i = 0; i <= repeats && status == TSR_OK; i++) {
		const double start = tsr_bench_seconds();

		status = tsr_pipeline_run(&p, run, err);
		if (i)
			seconds[i - 1] = tsr_bench_seconds() - start;
		if (status == TSR_OK && run->progress && !run->progress(run->ctx, i, repeats))
			status = tsr_fail(err, TSR_E_CANCELLED, "benchmark: cancelled");
	}
	*seconds_ret = tsr_bench_median(seconds, repeats);
	free(seconds);
	return status;
}

static enum tsr_status measure_codec(struct bench *b, const struct tsr_codec *codec,
				     unsigned repeats, const struct tsr_run *run,
				     struct tsr_bench_kernel *k, struct tsr_err *err)
{
	double encode, decode, gigabytes;

	b->coding = tsr_coding_default(codec);
	TSR_TRY(measure(b, ENCODE, repeats, run, &encode, err));
	TSR_TRY(measure(b, DECODE, repeats, run, &decode, err));
	k->name = codec->name;
	k->bytes_per_element = sizeof(float) + tsr_coding_bytes_per_element(&b->coding);
	gigabytes = 1e-9 * (double)b->n * k->bytes_per_element;
	k->encode_gbps = gigabytes / encode;
	k->decode_gbps = gigabytes / decode;
	return TSR_OK;
}

/* Without a choice: of a family only those with 8 extra bits. */
static bool is_measured(const struct tsr_codec *c, const char *choice)
{
	return choice ? strcmp(choice, c->name) == 0 : !c->family || c->extra_bits == 8;
}

static enum tsr_status run_bench(struct bench *b, const char *codec, unsigned repeats,
				 const struct tsr_run *run, struct tsr_bench_kernels *r,
				 struct tsr_err *err)
{
	double seconds;

	TSR_TRY(measure(b, FILL, 1, run, &seconds, err));
	TSR_TRY(measure(b, COPY, repeats, run, &seconds, err));
	r->copy_gbps = 1e-9 * (double)b->n * 2 * sizeof(float) / seconds;
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (is_measured(*c, codec))
			TSR_TRY(measure_codec(b, *c, repeats, run, &r->kernels[r->nkernels++],
					      err));
	}
	if (!codec) {
		void *const room[] = { b->x, b->y, b->plane[0], b->plane[1] };

		TSR_TRY(tsr_bench_steps(room, b->n, repeats, run, r, err));
	}
	return TSR_OK;
}

enum tsr_status tsr_bench_kernels(const char *codec, uint64_t elements, unsigned repeats,
				  const struct tsr_run *run, struct tsr_bench_kernels *ret,
				  struct tsr_err *err)
{
	struct bench b = { .n = elements };
	enum tsr_status status = TSR_OK;

	*ret = (struct tsr_bench_kernels){ .device = "cpu",
					   .threads = tsr_run_threads(run),
					   .isa = tsr_isa_name() };
	b.x = malloc(elements * sizeof(float));
	b.y = malloc(elements * sizeof(float));
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		b.plane[i] = malloc(elements * sizeof(float));
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		status = b.plane[i] && b.x && b.y ? status
						  : tsr_fail_nomem(err, "benchmark arrays");
	if (status == TSR_OK)
		status = run_bench(&b, codec, repeats, run, ret, err);
	free(b.x);
	free(b.y);
	for (unsigned i = 0; i < TSR_PLANES_MAX; i++)
		free(b.plane[i]);
	return status;
}
