/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds on the error of tensors: `--max-error` of pack and verify, `--tol` of diff. */
#include "pack/bounds.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "pack/packing.h"

const struct tsr_bound *tsr_bound_exceeded(const struct tsr_bound *bounds, unsigned n,
					   const struct tsr_measure *m, double *error_ret)
{
	for (unsigned i = 0; i < n; i++) {
		*error_ret = tsr_measure_error(m, bounds[i].metric);
		/* An error that is NaN is over every bound. */
		if (!(*error_ret <= bounds[i].limit))
			return &bounds[i];
	}
	return NULL;
}

enum tsr_status tsr_pack_check_bounds(const struct tsr_packing *p,
				      const struct tsr_pack_options *options, struct tsr_err *err)
{
	for (size_t i = 0; i < p->source->ntensors; i++) {
		const struct tsr_tensor *t = &p->source->tensors[i];
		const struct tsr_bound *bound = NULL;
		double error;

		if (t->coding.codec)
			bound = tsr_bound_exceeded(options->bounds, options->nbounds,
						   &p->tensors[i].measure, &error);
		if (bound)
			return tsr_fail(
				err, TSR_E_BOUND,
				"%s: tensor %.200s: found %s error %.4g, expected at most %.4g; "
				"nothing written",
				p->source->path, t->name, tsr_metric_name(bound->metric), error,
				bound->limit);
	}
	return TSR_OK;
}
