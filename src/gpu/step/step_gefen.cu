/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of Gefen's step on FP32 arrays: the moments by blocks, then the weights. */
#include "gpu/gpu_learned.cuh"
#include "gpu/step/gpu_step.cuh"

/* A thread has an element: the momentum, and the variance where it is that of this element alone. */
static __global__ void __launch_bounds__(TSR_BLOCK)
	move_each(const struct tsr_step_scalars s, const void *grad, enum tsr_dtype dtype,
		  enum tsr_dtype narrow, float *m, float *v, uint64_t n,
		  struct tsr_step_report *report)
{
	const uint64_t i = tsr_first_vector(1);
	unsigned nonfinite = 0;

	if (i < n) {
		const float g = gradient_at(grad, dtype, i);

		nonfinite = is_nonfinite(g);
		m[i] = tsr_one_nan(tsr_step_toward(&s, g, m[i]));
		if (v)
			v[i] = narrowed(narrow,
					tsr_step_gefen_variance(
						&s, tsr_block_mean(tsr_step_square(g), 1), v[i]));
	}
	if (report)
		tsr_add_count(&report->nonfinite_grad, nonfinite);
}

/* A warp has a block, whose elements have one variance. */
static __global__ void __launch_bounds__(TSR_BLOCK)
	move_blocks(const struct tsr_step_scalars s, const void *grad, enum tsr_dtype dtype,
		    enum tsr_dtype narrow, uint32_t size, float *v, uint64_t n)
{
	const struct team b = my_block(n, size);
	const double sum = sum_of_block(b, [=](uint64_t i) { return square_at(grad, dtype, i); });
	float moved = 0.0f;

	if (b.count)
		moved = narrowed(narrow, tsr_step_gefen_variance(&s, tsr_block_mean(sum, b.count),
								 v[b.first]));
	__syncwarp();
	for (uint32_t k = b.thread; k < b.count; k += 32)
		v[b.first + k] = moved;
}

static __global__ void __launch_bounds__(TSR_BLOCK)
	move_weights(const struct tsr_step_scalars s, enum tsr_dtype narrow, const float *m,
		     const float *v, float *w, uint64_t n)
{
	const uint64_t i = tsr_first_vector(1);

	if (i < n)
		w[i] = tsr_step_gefen_weight(&s, w[i], narrowed(narrow, m[i]), v[i]);
}

extern "C" enum tsr_status tsr_gpu_block_moments(struct tsr_gpu_stream *stream,
						 const struct tsr_step *step, const void *grad,
						 uint64_t n, float *m, float *v,
						 struct tsr_step_report *report,
						 struct tsr_err *err)
{
	const enum tsr_dtype narrow = step->coding[TSR_SLOT_MOMENTUM].narrow;
	const uint32_t block = tsr_step_block(step);

	move_each<<<tsr_blocks(n, 1), TSR_BLOCK, 0, stream->handle>>>(
		step->scalars, grad, step->grad_dtype, narrow, m, block == 1 ? v : NULL, n, report);
	if (block > 1)
		move_blocks<<<warps_for(n, block), TSR_BLOCK, 0, stream->handle>>>(
			step->scalars, grad, step->grad_dtype, narrow, block, v, n);
	return step_started(stream, step, err);
}

extern "C" enum tsr_status tsr_gpu_step_weights(struct tsr_gpu_stream *stream,
						const struct tsr_step *step, const void *grad,
						const float *m, const float *v, uint64_t n,
						float *w, struct tsr_err *err)
{
	if (step->rows)
		return tsr_gpu_step_matrix(stream, step, grad, m, w, err);
	move_weights<<<tsr_blocks(n, 1), TSR_BLOCK, 0, stream->handle>>>(
		step->scalars, step->coding[TSR_SLOT_MOMENTUM].narrow, m, v, w, n);
	return step_started(stream, step, err);
}
