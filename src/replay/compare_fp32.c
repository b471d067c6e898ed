/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of a replay with one in FP32: its figures. */
#include "replay/compare_fp32.h"

#include <math.h>
#include <stdbool.h>

/* --- Figures ---------------------------------------------------------------------------------- */

/* Infinite if the error is not finite: NaN is reserved for a missing state. */
static double error_of(const struct tsr_measure *m, enum tsr_metric metric)
{
	const double error = tsr_measure_error(m, metric);

	return isnan(error) ? INFINITY : error;
}

/* 0, the cosine of a right angle, if it is not finite. */
static double cosine_of(const struct tsr_measure *m)
{
	return isinf(error_of(m, TSR_METRIC_NMSE)) ? 0 : tsr_measure_value(m, TSR_METRIC_COSINE);
}

static double norm_of(const struct tsr_compare *c)
{
	double sum = 0;

	for (unsigned i = 0; i < TSR_MEASURE_LANES; i++)
		sum += c->norm[i];
	return isnan(sum) ? INFINITY : sqrt(sum);
}

struct tsr_replay_figures tsr_compare_figures(const struct tsr_compare *c, unsigned slots)
{
	const bool momentum = slots >> TSR_SLOT_MOMENTUM & 1;
	const bool variance = slots >> TSR_SLOT_VARIANCE & 1;
	const struct tsr_measure *state = c->state, *quant = c->quant;
	struct tsr_replay_figures f;
	double *v = f.value;

	for (unsigned i = 0; i < TSR_FIGURE_COUNT; i++)
		v[i] = NAN;
	v[TSR_FIGURE_WEIGHT_ULP] = error_of(&state[TSR_SLOT_WEIGHT], TSR_METRIC_MAX_ULP);
	v[TSR_FIGURE_WEIGHT_NMSE] = error_of(&state[TSR_SLOT_WEIGHT], TSR_METRIC_NMSE);
	v[TSR_FIGURE_WEIGHT_COSINE] = cosine_of(&state[TSR_SLOT_WEIGHT]);
	v[TSR_FIGURE_UPDATE_NMSE] = error_of(&c->update, TSR_METRIC_NMSE);
	v[TSR_FIGURE_UPDATE_QUANT] = error_of(&c->update_quant, TSR_METRIC_NMSE);
	v[TSR_FIGURE_UPDATE_NORM] = norm_of(c);
	v[TSR_FIGURE_STALLED] = (double)c->stalled;
	if (momentum) {
		v[TSR_FIGURE_MOMENTUM_NMSE] = error_of(&state[TSR_SLOT_MOMENTUM], TSR_METRIC_NMSE);
		v[TSR_FIGURE_MOMENTUM_QUANT] = error_of(&quant[TSR_SLOT_MOMENTUM], TSR_METRIC_NMSE);
	}
	if (variance) {
		v[TSR_FIGURE_VARIANCE_NMSE] = error_of(&state[TSR_SLOT_VARIANCE], TSR_METRIC_NMSE);
		v[TSR_FIGURE_VARIANCE_QUANT] = error_of(&quant[TSR_SLOT_VARIANCE], TSR_METRIC_NMSE);
		v[TSR_FIGURE_VARIANCE_LOST] = (double)quant[TSR_SLOT_VARIANCE].flushed;
	}
	if (momentum || variance)
		v[TSR_FIGURE_UNDERFLOW] = (double)c->underflow;
	return f;
}

/* --- Sums ------------------------------------------------------------------------------------ */

void tsr_replay_compare_commit(const struct tsr_replay_window *w, const struct tsr_replaying *r,
			       struct tsr_replay_sums *sums, unsigned step,
			       const struct tsr_tile *tile, const struct tsr_compare *compare)
{
	if (!tile->first)
		sums->param[step] = *compare;
	else
		tsr_compare_merge(&sums->param[step], compare);
	if (!tile->last)
		return;
	tsr_replay_step_in(r, w, step)->tensors[tile->tensor] = tsr_compare_figures(
		&sums->param[step], r->params[tile->tensor].slots);
	tsr_compare_merge(&sums->total[step], &sums->param[step]);
}

void tsr_replay_compare_finish(const struct tsr_replay_window *w, const struct tsr_replaying *r,
			       struct tsr_replay_sums *sums)
{
	unsigned slots = 0;

	for (size_t i = 0; i < r->nparams; i++)
		slots |= r->params[i].slots;
	for (unsigned i = 0; i < w->n; i++) {
		struct tsr_replay_step *step = tsr_replay_step_in(r, w, i);

		if (!step->skipped)
			step->total = tsr_compare_figures(&sums->total[i], slots);
		sums->total[i] = (struct tsr_compare){ .stalled = 0 };
	}
}
