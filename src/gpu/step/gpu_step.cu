/* SPDX-License-Identifier: Apache-2.0 */
/* A step of any rule on FP32 arrays. */
#include "gpu/step/step_rules.cuh"

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

extern "C" enum tsr_status tsr_gpu_step_arrays(struct tsr_gpu_stream *stream,
					       const struct tsr_step *step, const void *grad,
					       uint64_t n, float *const x[TSR_SLOTS],
					       struct tsr_step_report *report, struct tsr_err *err)
{
	struct step_args args = {};
	struct arrays arrays;

	memcpy(arrays.x, x, sizeof(arrays.x));
	args.scalars = step->scalars;
	args.rule = tsr_step_rule(step);
	args.grad = grad;
	args.grad_dtype = step->grad_dtype;
	args.report = report;
	TSR_TRY(tsr_gpu_use(stream->gpu, err));
	step_f32<<<tsr_blocks(n, 1), TSR_BLOCK, 0, stream->handle>>>(
		args, arrays, step->coding[TSR_SLOT_WEIGHT].first, n);
	return step_started(stream, step, err);
}
