/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds on the error of tensors: `--max-error` of pack and verify, `--tol` of diff. */
#include "pack/bounds.h"

#include <inttypes.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "pack/packing.h"

const struct tsr_bound *tsr_bound_exceeded(const struct tsr_bound *bounds, unsigned n,
					   const struct tsr_measured *m,
					   const struct tsr_update_measured *u, double *error_ret)
{
	for (unsigned i = 0; i < n; i++) {
		const bool of_update = bounds[i].metric == TSR_METRIC_UPDATE_NMSE;

		if (of_update ? !u || !u->n : !m)
			continue;
		*error_ret = of_update ? u->nmse : tsr_measured_error(m, bounds[i].metric);
		/* An error that is NaN is over every bound. */
		if (!(*error_ret <= bounds[i].limit))
			return &bounds[i];
	}
	return NULL;
}

enum tsr_status tsr_pack_check_exposed(const struct tsr_packing *p,
				       const struct tsr_pack_options *options, struct tsr_err *err)
{
	for (size_t i = 0; options->strict && i < p->source->ntensors; i++) {
		const uint64_t n = p->tensors[i].update.exposed;

		if (n)
			return tsr_fail_hint(
				err, TSR_E_UNSUPPORTED, TSR_HINT_STRICT,
				"%s: tensor %.200s: found %" PRIu64
				" variance%s that would become 0 under a momentum that "
				"does not, expected none",
				p->source->path, p->source->tensors[i].name, n, n == 1 ? "" : "s");
	}
	return TSR_OK;
}

enum tsr_status tsr_pack_check_bounds(const struct tsr_packing *p,
				      const struct tsr_pack_options *options, struct tsr_err *err)
{
	const uint64_t most = options->choice ? options->choice->max_nbytes : 0;

	/* Trials do not show which first planes are those of other tensors. */
	if (most && tsr_packing_nbytes(p) > most)
		return tsr_fail_hint(err, TSR_E_BOUND, TSR_HINT_CANDIDATES,
				     "%s: found %" PRIu64 " bytes, expected at most %" PRIu64
				     "; nothing written",
				     p->source->path, tsr_packing_nbytes(p), most);
	for (size_t i = 0; i < p->source->ntensors; i++) {
		const struct tsr_tensor *t = &p->source->tensors[i];
		const struct tsr_bound *bound = NULL;
		double error;

		bound = tsr_bound_exceeded(options->bounds, options->nbounds,
					   t->coding.codec ? &p->tensors[i].measure : NULL,
					   &p->tensors[i].update, &error);
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
