/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of any state on a GPU: by the fused kernels, or else by decoding, stepping and encoding. */
#include "replay/gpu/batch_step.h"

#include "base/fail.h"

/* Elements that are in FP32 at a time, where groups allow. */
#define BATCH (UINT64_C(1) << 24)

/* --- Batches ----------------------------------------------------------------------------------- */

static bool is_f32(const struct tsr_coding *coding)
{
	return !coding->codec->grouped && coding->codec->planes[0].dtype == TSR_F32;
}

/* A step of @n elements through FP32 arrays: those of the planes where these are in FP32. */
struct batch {
	struct tsr_gpu_stream *stream;
	struct tsr_step step; /* with planes and codings of the batch */
	const void *grad;
	uint64_t n;
	float *x[TSR_SLOTS]; /* NULL where the rule has no such state */
	struct tsr_step_report *report;
};

static enum tsr_status encode_slot(const struct batch *b, unsigned slot, struct tsr_err *err)
{
	const struct tsr_coding *coding = &b->step.coding[slot];

	if (!coding->codec || is_f32(coding))
		return TSR_OK;
	return tsr_gpu_encode(b->stream, coding, b->x[slot], b->n, b->step.plane[slot],
			      b->report ? &b->report->encode[slot] : NULL, err);
}

/* Where momenta are stored as ratios to their variances: turn the one into the other. */
static enum tsr_status turn(struct tsr_gpu_stream *stream, const struct tsr_step *step, uint64_t n,
			    float *const x[], bool make, struct tsr_err *err)
{
	const struct tsr_coding *coding = &step->coding[TSR_SLOT_MOMENTUM];

	if (!coding->codec || !coding->codec->relative)
		return TSR_OK;
	return tsr_gpu_turn_ratios(stream, coding->eps, x[TSR_SLOT_MOMENTUM], x[TSR_SLOT_VARIANCE],
				   n, make, x[TSR_SLOT_MOMENTUM], err);
}

enum tsr_status tsr_gpu_step_decode(struct tsr_gpu_stream *stream, const struct tsr_step *step,
				    uint64_t n, float *const x[], struct tsr_err *err)
{
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		const struct tsr_coding *coding = &step->coding[slot];
		void *const *plane = step->plane[slot];

		if (coding->codec && x[slot] != plane[0])
			TSR_TRY(tsr_gpu_decode(stream, coding, (const void *const *)plane, n,
					       x[slot], err));
	}
	return turn(stream, step, n, x, false, err);
}

/* Moments first; the weights move by what comes back of the momentum. */
static enum tsr_status step_in_two(const struct batch *b, struct tsr_err *err)
{
	float *const *x = b->x, *const m = x[TSR_SLOT_MOMENTUM];
	const struct tsr_coding *coding = &b->step.coding[TSR_SLOT_MOMENTUM];
	const void *const *plane = (const void *const *)b->step.plane[TSR_SLOT_MOMENTUM];

	TSR_TRY(tsr_gpu_block_moments(b->stream, &b->step, b->grad, b->n, m, x[TSR_SLOT_VARIANCE],
				      b->report, err));
	TSR_TRY(encode_slot(b, TSR_SLOT_VARIANCE, err));
	TSR_TRY(encode_slot(b, TSR_SLOT_MOMENTUM, err));
	if (!is_f32(coding))
		TSR_TRY(tsr_gpu_decode(b->stream, coding, plane, b->n, m, err));
	TSR_TRY(tsr_gpu_step_weights(b->stream, &b->step, b->grad, m, x[TSR_SLOT_VARIANCE], b->n,
				     x[TSR_SLOT_WEIGHT], err));
	return encode_slot(b, TSR_SLOT_WEIGHT, err);
}

static enum tsr_status step_batch(const struct batch *b, struct tsr_err *err)
{
	const struct tsr_step *s = &b->step;
	float *const *x = b->x;

	TSR_TRY(tsr_gpu_step_decode(b->stream, s, b->n, x, err));
	if (tsr_step_stores_first(s))
		return step_in_two(b, err);
	TSR_TRY(tsr_gpu_step_arrays(b->stream, s, b->grad, b->n, x, b->report, err));
	TSR_TRY(turn(b->stream, s, b->n, x, true, err));
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++)
		TSR_TRY(encode_slot(b, slot, err));
	return TSR_OK;
}

/* --- Any step ---------------------------------------------------------------------------------- */

/* Elements from @first to @n. */
static enum tsr_status step_batches(struct batch *b, const struct tsr_step *step, const void *grad,
				    uint64_t first, uint64_t n, struct tsr_err *err)
{
	const uint64_t size = tsr_step_batch(BATCH, tsr_step_align(step), n - first);

	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		const struct tsr_coding *coding = &step->coding[slot];

		void *memory;

		if (!coding->codec || is_f32(coding))
			continue;
		TSR_TRY(tsr_gpu_scratch(b->stream, slot, size * sizeof(float), &memory, err));
		b->x[slot] = memory;
	}
	for (; first < n; first += b->n) {
		b->n = n - first < size ? n - first : size;
		b->step = tsr_step_from(step, first);
		b->grad = (const char *)grad + first * (tsr_dtype_bits(step->grad_dtype) / 8);
		for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
			const struct tsr_coding *coding = &step->coding[slot];

			if (coding->codec && is_f32(coding))
				b->x[slot] = b->step.plane[slot][0];
		}
		TSR_TRY(step_batch(b, err));
	}
	return TSR_OK;
}

enum tsr_status tsr_gpu_step(struct tsr_gpu_stream *stream, const struct tsr_step *step,
			     const void *grad, uint64_t n, struct tsr_step_report *report,
			     struct tsr_err *err)
{
	struct batch b = { .stream = stream, .report = report };
	uint64_t done;

	TSR_TRY(tsr_gpu_step_fused(stream, step, grad, n, report, &done, err));
	return done < n ? step_batches(&b, step, grad, done, n, err) : TSR_OK;
}
