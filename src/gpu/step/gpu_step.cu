/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of any state: by the fused kernels, or else by decoding, stepping and encoding. */
#include "gpu/step/step_rules.cuh"

/* Elements that are in FP32 at a time, where groups allow. */
#define BATCH (UINT64_C(1) << 24)

/* --- The rule on FP32 arrays ------------------------------------------------------------------- */

struct arrays {
	float *x[TSR_SLOTS]; /* NULL where the rule has no such state */
};

/* A thread has an element: the gradient and 4 bytes per slot read, the slots written. */
static __global__ void __launch_bounds__(TSR_BLOCK)
	step_f32(const __grid_constant__ step_args a, struct arrays to, uint64_t first, uint64_t n)
{
	const uint64_t i = tsr_first_vector(1);
	unsigned nonfinite = 0;

	if (i < n) {
		const float recorded = gradient_at(a.grad, a.grad_dtype, i);
		const float g = a.scalars.maximize ? -recorded : recorded;
		float state[TSR_SLOTS] = {};

		for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++)
			state[slot] = to.x[slot] ? to.x[slot][i] : 0.0f;
		run_rule<ANY_STATES, 1>(&a, &g, &to.x[0][i], &state[1], &state[2], &state[3],
					first + i);
		nonfinite = is_nonfinite(g);
		for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++) {
			if (to.x[slot])
				to.x[slot][i] = state[slot];
		}
	}
	if (a.report)
		tsr_add_count(&a.report->nonfinite_grad, nonfinite);
}

/* --- Batches ----------------------------------------------------------------------------------- */

static bool is_f32(const struct tsr_coding *coding)
{
	return !coding->codec->grouped && coding->codec->planes[0].dtype == TSR_F32;
}

struct tsr_step tsr_gpu_step_from(const struct tsr_step *step, uint64_t first)
{
	struct tsr_step s = *step;

	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		const struct tsr_coding *coding = &step->coding[slot];

		for (unsigned i = 0; coding->codec && i < coding->codec->nplanes; i++)
			s.plane[slot][i] = (char *)step->plane[slot][i] +
					   tsr_plane_nbytes(coding, i, first);
		s.coding[slot].first += first;
	}
	return s;
}

/* A step of @n elements through FP32 arrays: those of the planes where these are in FP32. */
struct batch {
	struct tsr_gpu_stream *stream;
	struct tsr_step step; /* with planes and codings of the batch */
	const void *grad;
	uint64_t n;
	struct arrays arrays;
	struct tsr_step_report *report;
};

static enum tsr_status encode_slot(const struct batch *b, unsigned slot, struct tsr_err *err)
{
	const struct tsr_coding *coding = &b->step.coding[slot];

	if (!coding->codec || is_f32(coding))
		return TSR_OK;
	return tsr_gpu_encode(b->stream, coding, b->arrays.x[slot], b->n, b->step.plane[slot],
			      b->report ? &b->report->encode[slot] : NULL, err);
}

/* Where momenta are stored as ratios to their variances: turn the one into the other. */
static enum tsr_status turn(struct tsr_gpu_stream *stream, const struct tsr_step *step, uint64_t n,
			    float *const x[], bool make, struct tsr_err *err)
{
	const struct tsr_coding *coding = &step->coding[TSR_SLOT_MOMENTUM];

	if (coding->codec && coding->codec->relative)
		tsr_gpu_turn_ratios(stream->handle, coding->eps, x[TSR_SLOT_MOMENTUM],
				    x[TSR_SLOT_VARIANCE], n, make, x[TSR_SLOT_MOMENTUM]);
	return step_started(stream, step, err);
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
	float *const *x = b->arrays.x, *const m = x[TSR_SLOT_MOMENTUM];
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
	float *const *x = b->arrays.x;
	struct step_args args = {};

	TSR_TRY(tsr_gpu_step_decode(b->stream, s, b->n, x, err));
	if (tsr_step_stores_first(s))
		return step_in_two(b, err);
	args.scalars = s->scalars;
	args.rule = tsr_step_rule(s);
	args.grad = b->grad;
	args.grad_dtype = s->grad_dtype;
	args.report = b->report;
	step_f32<<<tsr_blocks(b->n, 1), TSR_BLOCK, 0, b->stream->handle>>>(
		args, b->arrays, s->coding[TSR_SLOT_WEIGHT].first, b->n);
	TSR_TRY(step_started(b->stream, s, err));
	TSR_TRY(turn(b->stream, s, b->n, x, true, err));
	for (unsigned slot = 0; slot < TSR_SLOTS; slot++)
		TSR_TRY(encode_slot(b, slot, err));
	return TSR_OK;
}

/* --- Any step ---------------------------------------------------------------------------------- */

uint64_t tsr_gpu_batch(uint64_t most, uint64_t align, uint64_t n)
{
	const uint64_t size = align < most ? most - most % align : align;

	return size < n ? size : n;
}

/* Elements from @first to @n. */
static enum tsr_status step_batches(struct batch *b, const struct tsr_step *step, const void *grad,
				    uint64_t first, uint64_t n, struct tsr_err *err)
{
	const uint64_t size = tsr_gpu_batch(BATCH, tsr_step_align(step), n - first);

	for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
		const struct tsr_coding *coding = &step->coding[slot];

		if (coding->codec && !is_f32(coding))
			TSR_TRY(tsr_gpu_scratch(b->stream, slot, size * sizeof(float),
						(void **)&b->arrays.x[slot], err));
	}
	for (; first < n; first += b->n) {
		b->n = n - first < size ? n - first : size;
		b->step = tsr_gpu_step_from(step, first);
		b->grad = (const char *)grad + first * (tsr_dtype_bits(step->grad_dtype) / 8);
		for (unsigned slot = 0; slot < TSR_SLOTS; slot++) {
			const struct tsr_coding *coding = &step->coding[slot];

			if (coding->codec && is_f32(coding))
				b->arrays.x[slot] = (float *)b->step.plane[slot][0];
		}
		TSR_TRY(step_batch(b, err));
	}
	return TSR_OK;
}

extern "C" enum tsr_status tsr_gpu_step(struct tsr_gpu_stream *stream, const struct tsr_step *step,
					const void *grad, uint64_t n,
					struct tsr_step_report *report, struct tsr_err *err)
{
	struct batch b = {};
	uint64_t done;

	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	done = tsr_gpu_step_fused(stream, step, grad, n, report);
	TSR_TRY(step_started(stream, step, err));
	b.stream = stream;
	b.report = report;
	return done < n ? step_batches(&b, step, grad, done, n, err) : TSR_OK;
}
