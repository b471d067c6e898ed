/* SPDX-License-Identifier: Apache-2.0 */
/* The curves of a replay: each figure over steps, of all tensors and of the worst. */
#include "report/charts/charts.h"

#include <stdlib.h>

#include "replay/replay_result.h"
#include "replay/findings/replay_figures.h"

static const struct tsr_curve_kind kinds[] = {
	{ TSR_FIGURE_MOMENTUM_NMSE, "Momentum error", "NMSE", "-momentum", "momentum\nNMSE:.2e",
	  .wide_log = true },
	{ TSR_FIGURE_VARIANCE_NMSE, "Variance error", "NMSE", "-variance", "variance\nNMSE:.2e",
	  .wide_log = true },
	{ TSR_FIGURE_UPDATE_NMSE, "Update error", "NMSE", "-update", "update\nNMSE:.2e",
	  .wide_log = true },
	{ TSR_FIGURE_UPDATE_QUANT, "Storing error of updates", "NMSE", "-quant",
	  "storing error\nNMSE:.2e", .wide_log = true },
	{ TSR_FIGURE_UPDATE_NORM, "Update length", "", "-norm", "update length:.2e",
	  .percent = false },
	{ TSR_FIGURE_WEIGHT_NMSE, "Weight error", "NMSE", "-weight", "weight\nNMSE:.2e",
	  .wide_log = true },
	{ TSR_FIGURE_STALLED, "Stalled weights", "%", "-stalled", "stalled\n%:.4%",
	  .percent = true },
	{ TSR_FIGURE_UNDERFLOW, "Groups whose scale is stored as 0", "%", "-underflow",
	  "groups lost\n%:.4%", .percent = true, .only_if_any = true },
	{ TSR_FIGURE_VARIANCE_LOST, "Variances stored as 0", "%", "-lost", "variances lost\n%:.4%",
	  .percent = true, .only_if_any = true },
};

_Static_assert(sizeof(kinds) / sizeof(*kinds) <= TSR_CURVES_MAX, "a curve of each kind");

/* The count that is 100% of a parameter, or of all for SIZE_MAX; 0 if unknown. */
static uint64_t whole_of(const struct tsr_curve_kind *kind, const struct tsr_replay *r,
			 size_t param)
{
	return kind->figure == TSR_FIGURE_UNDERFLOW ? tsr_replay_ngroups(r, param)
						    : tsr_replay_numel(r, param);
}

static double percent_of(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

/*
 * False if no step has the figure, or a panel would show zeros only.  @whole: the counts that are 100% of
 * each parameter, and last of all.
 */
static bool fill_curve(const struct tsr_curves *c, struct tsr_curve *curve, const double *whole)
{
	const struct tsr_replay *r = c->replay;
	const enum tsr_figure_name figure = curve->kind->figure;
	const bool percent = curve->kind->percent;

	curve->y = TSR_AXIS;
	for (size_t i = 0; i < r->nsteps; i++) {
		const struct tsr_replay_step *s = &r->steps[i];

		curve->total[i] = curve->worst[i] = NAN;
		if (!tsr_replay_has_figures(r, i))
			continue;
		curve->total[i] = s->total.value[figure];
		if (percent)
			curve->total[i] = percent_of(curve->total[i], whole[r->nparams]);
		for (size_t p = 0; p < r->nparams; p++) {
			double value = s->tensors[p].value[figure];

			if (percent)
				value = percent_of(value, whole[p]);
			if (isnan(value) || value <= curve->worst[i])
				continue;
			curve->worst[i] = value;
			curve->tensor[i] = p;
		}
		tsr_axis_note(&curve->y, curve->total[i]);
		tsr_axis_note(&curve->y, curve->worst[i]);
	}
	return curve->y.most > 0 || curve->y.any_infinite ||
	       (curve->y.any_zero && !curve->kind->only_if_any);
}

bool tsr_curves_find(struct tsr_curves *c, const struct tsr_replay *r)
{
	const size_t n = r->nsteps, nkinds = sizeof(kinds) / sizeof(*kinds);
	double *whole = calloc(r->nparams + 1, sizeof(*whole));

	*c = (struct tsr_curves){ .replay = r };
	c->values = calloc(2 * nkinds * n + 1, sizeof(*c->values));
	c->tensors = calloc(nkinds * n + 1, sizeof(*c->tensors));
	if (!whole || !c->values || !c->tensors) {
		free(whole);
		tsr_curves_free(c);
		return false;
	}
	for (size_t k = 0; k < nkinds && r->compared; k++) {
		struct tsr_curve *curve = &c->curve[c->n];

		*curve = (struct tsr_curve){ .kind = &kinds[k],
					     .total = c->values + 2 * c->n * n,
					     .worst = c->values + (2 * c->n + 1) * n,
					     .tensor = c->tensors + c->n * n };
		for (size_t p = 0; p <= r->nparams && kinds[k].percent; p++)
			whole[p] = (double)whole_of(&kinds[k], r, p < r->nparams ? p : SIZE_MAX);
		c->n += fill_curve(c, curve, whole);
	}
	free(whole);
	return true;
}

size_t tsr_first_largest(const double *values, size_t n)
{
	size_t at = SIZE_MAX;
	double most = 0;

	for (size_t i = 0; i < n; i++) {
		if (!(values[i] > most))
			continue;
		most = values[i];
		at = i;
	}
	return at;
}

double tsr_curve_largest(const struct tsr_curve *c, const struct tsr_replay *r, size_t param)
{
	const double largest = tsr_replay_largest(r, param, c->kind->figure);

	return c->kind->percent ? percent_of(largest, (double)whole_of(c->kind, r, param))
				: largest;
}

void tsr_curves_free(struct tsr_curves *c)
{
	free(c->values);
	free(c->tensors);
	*c = (struct tsr_curves){ .n = 0 };
}
