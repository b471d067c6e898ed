/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of optimizer steps on a GPU, in device time. */
#include "base/fail.h"
#include "bench/bench_steps.h"
#include "bench/bench_timing_gpu.h"

/* Planes begin at multiples of this. */
#define ALIGNMENT UINT64_C(256)

struct bench {
	const struct tsr_bench_gpu *on;
	const float *values, *squares;
	uint64_t n;
	struct tsr_step step;
	void *room[TSR_PARTS], *grad; /* in device memory */
};

static enum tsr_status allocate(struct bench *b, struct tsr_err *err)
{
	const uint64_t nbytes = tsr_bench_step_room(b->n) + ALIGNMENT;

	for (unsigned p = 0; p < TSR_PARTS; p++)
		TSR_TRY(tsr_gpu_alloc(b->on->gpu, nbytes, "a benchmark's state", &b->room[p], err));
	return tsr_gpu_alloc(b->on->gpu, nbytes, "a benchmark's gradient", &b->grad, err);
}

/* Fill state and gradient with plausible values, encoded on the GPU. */
static enum tsr_status fill(struct bench *b, struct tsr_err *err)
{
	const char *narrow = b->step.grad_dtype == TSR_F32 ? "f32" : "bf16";
	const struct tsr_coding grad = tsr_coding_default(tsr_codec_find(narrow));
	const struct tsr_bench_gpu *on = b->on;

	tsr_bench_put_planes(&b->step, b->room, b->n, ALIGNMENT);
	for (unsigned p = 0; p < TSR_PARTS; p++) {
		const float *x = p == TSR_PART_VARIANCE ? b->squares : b->values;

		if (b->step.coding[p].codec)
			TSR_TRY(tsr_gpu_encode(on->stream, &b->step.coding[p], x, b->n,
					       b->step.plane[p], NULL, err));
	}
	return tsr_gpu_encode(on->stream, &grad, b->values, b->n, &b->grad, NULL, err);
}

static enum tsr_status step(void *ctx, struct tsr_err *err)
{
	struct bench *b = ctx;

	return tsr_gpu_step(b->on->stream, &b->step, b->grad, b->n, NULL, err);
}

static enum tsr_status measure(struct bench *b, struct tsr_bench_kernels *ret, struct tsr_err *err)
{
	double seconds;

	for (const struct tsr_bench_step_case *c = tsr_bench_step_cases; c->name; c++) {
		b->step = tsr_bench_step_of(c);
		TSR_TRY(fill(b, err));
		TSR_TRY(tsr_bench_time_gpu(b->on, step, b, &seconds, err));
		tsr_bench_add_step(ret, c, &b->step, b->n, seconds);
	}
	return TSR_OK;
}

enum tsr_status tsr_bench_steps_gpu(const struct tsr_bench_gpu *on, const float *values,
				    const float *squares, uint64_t n, struct tsr_bench_kernels *ret,
				    struct tsr_err *err)
{
	struct bench b = { .on = on, .values = values, .squares = squares, .n = n };
	enum tsr_status status = allocate(&b, err);

	if (status == TSR_OK)
		status = measure(&b, ret, err);
	for (unsigned p = 0; p < TSR_PARTS; p++)
		tsr_gpu_free(on->gpu, b.room[p]);
	tsr_gpu_free(on->gpu, b.grad);
	return status;
}
