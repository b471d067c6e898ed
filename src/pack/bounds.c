/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds on the error of tensors: `--max-error` of pack, verify and diff. */
#include "pack/bounds.h"

#include <inttypes.h>
#include <math.h>

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "pack/packing.h"

const struct tsr_bound *tsr_bound_exceeded(const struct tsr_bound *bounds, unsigned n,
					   const struct tsr_measured *m,
					   const struct tsr_update_measured *u, double step,
					   double *error_ret)
{
	for (unsigned i = 0; i < n; i++) {
		switch (bounds[i].metric) {
		case TSR_METRIC_UPDATE_NMSE:
			if (!u || !u->n)
				continue;
			*error_ret = u->nmse;
			break;
		case TSR_METRIC_WEIGHT_STEP:
			if (step < 0)
				continue;
			*error_ret = step;
			break;
		default:
			if (!m)
				continue;
			*error_ret = tsr_measured_error(m, bounds[i].metric);
		}
		/* An error that is NaN is over every bound. */
		if (!(*error_ret <= bounds[i].limit))
			return &bounds[i];
	}
	return NULL;
}

bool tsr_weight_of(const struct tsr_checkpoint *c, size_t variance,
		   const struct tsr_update_measured *u, double lr, size_t *index_ret)
{
	const struct tsr_tensor *v = &c->tensors[variance];
	const struct tsr_tensor *w = v->weight && u->n && lr > 0 && v->kind == TSR_KIND_VARIANCE
					     ? tsr_checkpoint_find(c, v->weight)
					     : NULL;

	if (!w || w->numel != v->numel)
		return false;
	*index_ret = (size_t)(w - c->tensors);
	return true;
}

/* An error that is NaN, and any over a bound of 0, is furthest off. */
static double excess(const struct tsr_bound *bound, double error)
{
	return error == error && bound->limit > 0 ? error / bound->limit : INFINITY;
}

void tsr_bound_worst_add(struct tsr_bound_worst *w, size_t tensor, const struct tsr_bound *bound,
			 double error)
{
	if (!w->n++ || excess(bound, error) > excess(w->bound, w->error)) {
		w->tensor = tensor;
		w->bound = bound;
		w->error = error;
	}
}

static enum tsr_status check_exposed(const struct tsr_packing *p, struct tsr_err *err)
{
	for (size_t i = 0; i < p->source->ntensors; i++) {
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

enum tsr_status tsr_pack_check_updates(const struct tsr_packing *p,
				       const struct tsr_pack_options *options, struct tsr_err *err)
{
	static const struct tsr_bound bad = { TSR_METRIC_UPDATE_NMSE, TSR_UPDATE_BAD };
	struct tsr_bound_worst w = { .n = 0 };

	if (!options->strict)
		return TSR_OK;
	TSR_TRY(check_exposed(p, err));
	for (size_t i = 0; i < p->source->ntensors; i++) {
		const struct tsr_update_measured *u = &p->tensors[i].update;

		if (u->n && tsr_update_level(u->nmse) == TSR_FINDING_BAD)
			tsr_bound_worst_add(&w, i, &bad, u->nmse);
	}
	if (!w.n)
		return TSR_OK;
	return tsr_fail_hint(err, TSR_E_UNSUPPORTED, TSR_HINT_STRICT,
			     "%s: tensor %.200s: found update-nmse error %.4g, expected less than "
			     "%.4g; %zu variance%s over that",
			     p->source->path, p->source->tensors[w.tensor].name, w.error, bad.limit,
			     w.n, w.n == 1 ? " is" : "s are");
}

enum tsr_status tsr_pack_check_bounds(const struct tsr_packing *p,
				      const struct tsr_pack_options *options, struct tsr_err *err)
{
	const uint64_t most = options->choice ? options->choice->max_nbytes : 0;
	struct tsr_bound_worst w = { .n = 0 };
	double error;

	/* Trials do not show which first planes are those of other tensors. */
	if (most && tsr_packing_nbytes(p) > most)
		return tsr_fail_hint(err, TSR_E_BOUND, TSR_HINT_CANDIDATES,
				     "%s: found %" PRIu64 " bytes, expected at most %" PRIu64
				     "; nothing written",
				     p->source->path, tsr_packing_nbytes(p), most);
	for (size_t i = 0; i < p->source->ntensors; i++) {
		const struct tsr_bound *bound = tsr_bound_exceeded(
			options->bounds, options->nbounds,
			p->source->tensors[i].coding.codec ? &p->tensors[i].measure : NULL,
			&p->tensors[i].update, p->tensors[i].weight_step, &error);

		if (bound)
			tsr_bound_worst_add(&w, i, bound, error);
	}
	if (!w.n)
		return TSR_OK;
	return tsr_fail(err, TSR_E_BOUND,
			"%s: tensor %.200s: found %s error %.4g, expected at most %.4g; %zu "
			"tensor%s over a bound, this one furthest; nothing written",
			p->source->path, p->source->tensors[w.tensor].name,
			tsr_metric_name(w.bound->metric), w.error, w.bound->limit, w.n,
			w.n == 1 ? " is" : "s are");
}
