/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of optimizer steps on a GPU, in device time. */
#include "bench/bench_steps_gpu.h"

#include <string.h>

#include "base/fail.h"
#include "bench/bench_steps.h"
#include "bench/bench_timing.h"

#define WARM_UPS 3u

/* Planes begin at multiples of this. */
#define ALIGNMENT UINT64_C(256)

struct bench {
	const struct tsr_bench_gpu *on;
	struct tsr_step step;
	void *room[TSR_PARTS], *grad; /* in device memory */
};

static enum tsr_status allocate(struct bench *b, struct tsr_err *err)
{
	const uint64_t nbytes = tsr_bench_step_room(b->on->n) + ALIGNMENT;

	for (unsigned p = 0; p < TSR_PARTS; p++)
		TSR_TRY(tsr_gpu_alloc(b->on->gpu, nbytes, "a benchmark's state", &b->room[p], err));
	return tsr_gpu_alloc(b->on->gpu, nbytes, "a benchmark's gradient", &b->grad, err);
}

static void put_planes(struct bench *b)
{
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const struct tsr_coding *c = &b->step.coding[p];
		unsigned char *at = b->room[p];

		for (unsigned i = 0; c->codec && i < c->codec->nplanes; i++) {
			b->step.plane[p][i] = at;
			at += (tsr_plane_nbytes(c, i, b->on->n) + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
		}
	}
}

/* State and gradient as a training run has them, encoded on the GPU. */
static enum tsr_status fill(struct bench *b, struct tsr_err *err)
{
	const char *narrow = b->step.grad_dtype == TSR_F32 ? "f32" : "bf16";
	const struct tsr_coding grad = tsr_coding_default(tsr_codec_find(narrow));
	const struct tsr_bench_gpu *on = b->on;

	put_planes(b);
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const float *x = p == TSR_PART_VARIANCE ? on->squares : on->values;

		if (b->step.coding[p].codec)
			TSR_TRY(tsr_gpu_encode(on->stream, &b->step.coding[p], x, on->n,
					       b->step.plane[p], NULL, err));
	}
	return tsr_gpu_encode(on->stream, &grad, on->values, on->n, &b->grad, NULL, err);
}

/* Median seconds of a step, after some that do not count. */
static enum tsr_status measure(struct bench *b, double *seconds_ret, struct tsr_err *err)
{
	const struct tsr_bench_gpu *on = b->on;

	TSR_TRY(fill(b, err));
	for (unsigned i = 0; i < WARM_UPS; i++)
		TSR_TRY(tsr_gpu_step(on->stream, &b->step, b->grad, on->n, NULL, err));
	for (unsigned i = 0; i < on->repeats; i++) {
		TSR_TRY(tsr_gpu_record(on->stream, on->start, err));
		TSR_TRY(tsr_gpu_step(on->stream, &b->step, b->grad, on->n, NULL, err));
		TSR_TRY(tsr_gpu_record(on->stream, on->stop, err));
		TSR_TRY(tsr_gpu_seconds(on->start, on->stop, &on->seconds[i], err));
		TSR_TRY(tsr_bench_progress(on->run, i + 1, on->repeats, err));
	}
	*seconds_ret = tsr_bench_median(on->seconds, on->repeats);
	return TSR_OK;
}

enum tsr_status tsr_bench_steps_gpu(const struct tsr_bench_gpu *on, struct tsr_bench_kernels *ret,
				    struct tsr_err *err)
{
	struct bench b = { .on = on };
	enum tsr_status status = allocate(&b, err);

	for (const struct tsr_bench_step_case *c = tsr_bench_step_cases;
	     c->name && status == TSR_OK; c++) {
		double seconds;

		b.step = tsr_bench_step_of(c);
		status = measure(&b, &seconds, err);
		if (status == TSR_OK)
			tsr_bench_add_step(ret, c, &b.step, on->n, seconds);
	}
	for (unsigned p = 0; p < TSR_PARTS; p++)
		tsr_gpu_free(on->gpu, b.room[p]);
	tsr_gpu_free(on->gpu, b.grad);
	return status;
}
