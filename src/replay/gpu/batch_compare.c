/* SPDX-License-Identifier: Apache-2.0 */
/* A step on a state on a GPU and the same step in FP32, as step_compare.c has them on the CPU. */
#include "replay/gpu/batch_step.h"

#include "base/fail.h"

/* Elements that pass through FP32 arrays at a time, where runs allow. */
#define BATCH (UINT64_C(1) << 22)

struct batch {
	struct tsr_gpu_stream *stream;
	struct tsr_step step; /* with planes and codings of the batch */
	const void *grad;
	struct tsr_compare_run x;
	struct tsr_step_report *report;
};

static enum tsr_status copy(const struct batch *b, float *to, const float *from,
			    struct tsr_err *err)
{
	return tsr_gpu_copy(b->stream, to, from, b->x.n * sizeof(float), err);
}

static enum tsr_status step_f32(const struct batch *b, const struct tsr_step_scalars *scalars,
				float *const x[], struct tsr_err *err)
{
	const struct tsr_step step = tsr_compare_step(&b->step, scalars, x);

	return tsr_gpu_step(b->stream, &step, b->grad, b->x.n, NULL, err);
}

/* What is stored, before it is encoded; weights may move by the momentum that has been stored. */
static enum tsr_status step_again(const struct batch *b, struct tsr_err *err)
{
	float *const *x = b->x.stepped;

	if (!tsr_step_stores_first(&b->step))
		return step_f32(b, &b->step.scalars, x, err);
	TSR_TRY(tsr_gpu_block_moments(b->stream, &b->step, b->grad, b->x.n, x[TSR_SLOT_MOMENTUM],
				      x[TSR_SLOT_VARIANCE], NULL, err));
	return tsr_gpu_step_weights(b->stream, &b->step, b->grad, b->x.after[TSR_SLOT_MOMENTUM],
				    x[TSR_SLOT_VARIANCE], b->x.n, x[TSR_SLOT_WEIGHT], err);
}

static enum tsr_status step_both(const struct batch *b, struct tsr_err *err)
{
	const struct tsr_compare_run *x = &b->x;

	TSR_TRY(tsr_gpu_step_decode(b->stream, &b->step, x->n, x->before, err));
	if (!b->grad)
		return TSR_OK;
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		if (x->before[slot])
			TSR_TRY(copy(b, x->stepped[slot], x->before[slot], err));
	}
	TSR_TRY(tsr_gpu_step(b->stream, &b->step, b->grad, x->n, b->report, err));
	TSR_TRY(tsr_gpu_step_decode(b->stream, &b->step, x->n, x->after, err));
	TSR_TRY(step_again(b, err));
	TSR_TRY(copy(b, x->fp32_before, x->fp32_after[TSR_SLOT_WEIGHT], err));
	return step_f32(b, &b->step.fp32, x->fp32_after, err);
}

/* The batch of elements @first to @first + @n - 1, with arrays of @room elements at @memory. */
static struct batch batch_at(const struct tsr_step *step, float *const fp32[], uint64_t first,
			     uint64_t n, float *memory, uint64_t room)
{
	struct batch b = { .step = tsr_step_from(step, first) };

	b.x = tsr_compare_place(step, fp32, n, memory, room);
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		if (b.x.fp32_after[slot])
			b.x.fp32_after[slot] += first;
	}
	return b;
}

/* Without a gradient nothing moves. */
static void stand(struct tsr_compare_run *x)
{
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++)
		x->stepped[slot] = x->after[slot] = x->before[slot];
	x->fp32_before = x->fp32_after[TSR_SLOT_WEIGHT];
}

enum tsr_status tsr_gpu_step_compare(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				     float *const fp32[TSR_SLOTS], const void *grad, uint64_t n,
				     uint64_t run, struct tsr_compare *sums,
				     struct tsr_step_report *report, struct tsr_err *err)
{
	const uint64_t size = tsr_step_batch(BATCH, run, n), room = (size + 63) / 64 * 64;
	const size_t element = tsr_dtype_bits(step->grad_dtype) / 8;
	void *memory;

	TSR_TRY(tsr_gpu_scratch(stream, TSR_GPU_SCRATCH_COMPARE,
				TSR_COMPARE_ARRAYS * room * sizeof(float), &memory, err));
	for (uint64_t first = 0; first < n; first += size) {
		const uint64_t left = n - first, count = left < size ? left : size;
		struct batch b = batch_at(step, fp32, first, count, memory, room);

		b.stream = stream;
		b.report = report;
		if (grad)
			b.grad = (const char *)grad + first * element;
		else
			stand(&b.x);
		TSR_TRY(step_both(&b, err));
		TSR_TRY(tsr_gpu_measure(stream, &b.x, run, sums, err));
	}
	return TSR_OK;
}
