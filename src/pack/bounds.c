/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds on the error of packed tensors: `pack --max-error`. */
#include "pack/bounds.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"

static enum tsr_status check_tensor(const struct tsr_packing *p, size_t tensor,
				    const struct tsr_bound *bound, struct tsr_err *err)
{
	const double error = tsr_measure_error(&p->tensors[tensor].measure, bound->metric);

	/* An error that is NaN is over every bound. */
	if (error <= bound->limit)
		return TSR_OK;
	return tsr_fail(
		err, TSR_E_BOUND,
		"%s: tensor %.200s: found %s error %.4g, expected at most %.4g; nothing written",
		p->source->path, p->source->tensors[tensor].name, tsr_metric_name(bound->metric),
		error, bound->limit);
}

enum tsr_status tsr_pack_check_bounds(const struct tsr_packing *p,
				      const struct tsr_pack_options *options, struct tsr_err *err)
{
	for (size_t i = 0; i < p->source->ntensors; i++) {
		for (unsigned b = 0; p->source->tensors[i].coding.codec && b < options->nbounds;
		     b++)
			TSR_TRY(check_tensor(p, i, &options->bounds[b], err));
	}
	return TSR_OK;
}
