/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of codecs in memory. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/isa.h"
#include "base/pipeline.h"
#include "bench/bench_kernels.h"
#include "bench/bench_steps.h"
#include "bench/bench_timing.h"

void tsr_bench_set_kernel(struct tsr_bench_kernel *k, const struct tsr_coding *coding, uint64_t n,
			  double encode_seconds, double decode_seconds)
{
	double gigabytes;

	k->name = coding->codec->name;
	k->bytes_per_element = sizeof(float) + tsr_coding_bytes_per_element(coding);
	gigabytes = 1e-9 * (double)n * k->bytes_per_element;
	k->encode_gbps = gigabytes / encode_seconds;
	k->decode_gbps = gigabytes / decode_seconds;
}

bool tsr_bench_wants(const struct tsr_codec *codec, const char *choice)
{
	return choice ? strcmp(choice, codec->name) == 0 : !codec->family || codec->extra_bits == 8;
}

enum action { FILL, COPY, ENCODE, DECODE };

struct bench {
	uint64_t n;
	float *x, *y;
	unsigned char *plane[TSR_PLANES_MAX];
	struct tsr_coding coding;
	enum action action;
};

static enum tsr_status do_job(void *ctx, void *scratch, uint64_t job, struct tsr_err *err)
{
	const struct bench *b = ctx;
	const uint64_t first = job * TSR_BENCH_TILE;
	const size_t n = tsr_bench_tile(b->n, first);
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

/* Median seconds of an action. */
static enum tsr_status measure(struct bench *b, enum action action, unsigned repeats,
			       const struct tsr_run *run, double *seconds_ret, struct tsr_err *err)
{
	const struct tsr_pipeline p = { .njobs = tsr_bench_njobs(b->n), .work = do_job, .ctx = b };

	b->action = action;
	return tsr_bench_time(&p, repeats, run, seconds_ret, err);
}

static enum tsr_status measure_codec(struct bench *b, const struct tsr_codec *codec,
				     unsigned repeats, const struct tsr_run *run,
				     struct tsr_bench_kernel *k, struct tsr_err *err)
{
	double encode, decode;

	b->coding = tsr_bench_coding(codec);
	TSR_TRY(measure(b, ENCODE, repeats, run, &encode, err));
	TSR_TRY(measure(b, DECODE, repeats, run, &decode, err));
	tsr_bench_set_kernel(k, &b->coding, b->n, encode, decode);
	return TSR_OK;
}

static enum tsr_status run_bench(struct bench *b, const char *codec, unsigned repeats,
				 const struct tsr_run *run, struct tsr_bench_kernels *r,
				 struct tsr_err *err)
{
	static const char *const learned[] = { "gefen8", "blockmean" };
	double seconds;

	TSR_TRY(measure(b, FILL, 1, run, &seconds, err));
	TSR_TRY(measure(b, COPY, repeats, run, &seconds, err));
	r->copy_gbps = 1e-9 * (double)b->n * 2 * sizeof(float) / seconds;
	for (const struct tsr_codec *const *c = tsr_codecs(); *c; c++) {
		if (tsr_bench_wants(*c, codec))
			TSR_TRY(measure_codec(b, *c, repeats, run, &r->kernels[r->nkernels++],
					      err));
	}
	for (unsigned i = 0; !codec && i < sizeof(learned) / sizeof(*learned); i++)
		TSR_TRY(measure_codec(b, tsr_codec_find(learned[i]), repeats, run,
				      &r->kernels[r->nkernels++], err));
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
