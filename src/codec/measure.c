/* SPDX-License-Identifier: Apache-2.0 */
/* Error metrics: their names and their values from what was counted. */
#include "codec/measuring.h"

#include <math.h>
#include <string.h>

#include "codec/math.h"

static const char *const names[TSR_METRIC_WEIGHT_STEP + 1] = {
	[TSR_METRIC_MAX_ABS] = "abs",
	[TSR_METRIC_MAX_ULP] = "ulp",
	[TSR_METRIC_MEAN_REL] = "rel",
	[TSR_METRIC_NMSE] = "nmse",
	[TSR_METRIC_COSINE] = "cosine",
	[TSR_METRIC_UPDATE_NMSE] = "update-nmse",
	[TSR_METRIC_WEIGHT_STEP] = "weight-step",
};

const char *tsr_metric_name(enum tsr_metric metric)
{
	return names[metric];
}

bool tsr_metric_find(const char *name, enum tsr_metric *metric_ret)
{
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (names[i] && strcmp(names[i], name) == 0) {
			*metric_ret = (enum tsr_metric)i;
			return true;
		}
	}
	return false;
}

void tsr_measure_merge(struct tsr_measure *into, const struct tsr_measure *from)
{
	into->n += from->n;
	into->exact += from->exact;
	into->nonfinite += from->nonfinite;
	into->negative += from->negative;
	into->overflow += from->overflow;
	into->flushed += from->flushed;
	into->sign_lost += from->sign_lost;
	into->zeros += from->zeros;
	if (from->max_ulp > into->max_ulp)
		into->max_ulp = from->max_ulp;
	into->max_abs = tsr_max_magnitude(into->max_abs, from->max_abs);
	for (int i = 0; i < TSR_MEASURE_LANES; i++) {
		into->sum_rel[i] += from->sum_rel[i];
		into->sum_xx[i] += from->sum_xx[i];
		into->sum_dd[i] += from->sum_dd[i];
		into->sum_xd[i] += from->sum_xd[i];
	}
}

static double lane_sum(const double lanes[TSR_MEASURE_LANES])
{
	double sum = 0;

	for (int i = 0; i < TSR_MEASURE_LANES; i++)
		sum += lanes[i];
	return sum;
}

/* With y = x - d: x.y = xx - xd and y.y = xx - 2 xd + dd. */
static double one_minus_cosine(double xx, double xd, double dd)
{
	const double yy = xx - 2 * xd + dd;
	const double norm = sqrt(xx) * sqrt(yy > 0 ? yy : 0);

	if (dd == 0)
		return 0;
	if (norm == 0)
		return 1;
	/* |x| |y| - x.y without the cancellation: (|x|^2 |y|^2 - (x.y)^2) / (|x| |y| + x.y). */
	const double xy = xx - xd;
	const double square = xx * dd - xd * xd;

	if (xy <= 0)
		return 1 - xy / norm;
	return (square > 0 ? square : 0) / (norm * (norm + xy));
}

/* Of the sums of squares of values and of their differences. */
static double nmse_of(double xx, double dd)
{
	if (dd == 0)
		return 0;
	return xx > 0 ? dd / xx : INFINITY;
}

static double root_mean(double sum, uint64_t n)
{
	return n ? sqrt(sum / (double)n) : 0;
}

struct tsr_measured tsr_measure_result(const struct tsr_measure *m)
{
	const double xx = lane_sum(m->sum_xx), dd = lane_sum(m->sum_dd);
	const uint64_t nonzero = m->n - m->zeros - m->nonfinite;

	return (struct tsr_measured){
		.n = m->n,
		.exact = m->exact,
		.nonfinite = m->nonfinite,
		.negative = m->negative,
		.overflow = m->overflow,
		.flushed = m->flushed,
		.sign_lost = m->sign_lost,
		.max_ulp = m->max_ulp,
		.max_abs = m->max_abs,
		.mean_rel = nonzero ? lane_sum(m->sum_rel) / (double)nonzero : 0,
		.nmse = nmse_of(xx, dd),
		.one_minus_cosine = one_minus_cosine(xx, lane_sum(m->sum_xd), dd),
		.rms_error = root_mean(dd, m->n),
	};
}

double tsr_measured_error(const struct tsr_measured *m, enum tsr_metric metric)
{
	switch (metric) {
	case TSR_METRIC_MAX_ABS:
		return (double)m->max_abs;
	case TSR_METRIC_MAX_ULP:
		return (double)m->max_ulp;
	case TSR_METRIC_MEAN_REL:
		return m->mean_rel;
	case TSR_METRIC_NMSE:
		return m->nmse;
	case TSR_METRIC_COSINE:
		return m->one_minus_cosine;
	case TSR_METRIC_COUNT:
	case TSR_METRIC_UPDATE_NMSE:
	case TSR_METRIC_WEIGHT_STEP:
		break;
	}
	return 0;
}

double tsr_measured_value(const struct tsr_measured *m, enum tsr_metric metric)
{
	const double error = tsr_measured_error(m, metric);

	return metric == TSR_METRIC_COSINE ? 1 - error : error;
}

/* --- Updates ---------------------------------------------------------------------------------- */

void tsr_update_measure_merge(struct tsr_update_measure *into,
			      const struct tsr_update_measure *from)
{
	into->n += from->n;
	into->nonfinite += from->nonfinite;
	into->overflow += from->overflow;
	into->exposed += from->exposed;
	into->max_before = tsr_max_magnitude(into->max_before, from->max_before);
	into->max_after = tsr_max_magnitude(into->max_after, from->max_after);
	for (int i = 0; i < TSR_MEASURE_LANES; i++) {
		into->sum_uu[i] += from->sum_uu[i];
		into->sum_dd[i] += from->sum_dd[i];
		into->sum_tt[i] += from->sum_tt[i];
	}
}

double tsr_update_measure_nmse(const struct tsr_update_measure *u)
{
	const double now = lane_sum(u->sum_dd), later = lane_sum(u->sum_tt);

	return u->overflow ? (double)INFINITY
			   : nmse_of(lane_sum(u->sum_uu), now > later ? now : later);
}

struct tsr_update_measured tsr_update_measure_result(const struct tsr_update_measure *u)
{
	return (struct tsr_update_measured){
		.n = u->n,
		.nonfinite = u->nonfinite,
		.overflow = u->overflow,
		.exposed = u->exposed,
		.max_before = u->max_before,
		.max_after = u->max_after,
		.nmse = tsr_update_measure_nmse(u),
		.rms = root_mean(lane_sum(u->sum_uu), u->n),
	};
}

double tsr_weight_step(const struct tsr_measured *weight, const struct tsr_update_measured *update,
		       double lr)
{
	return update->rms > 0 ? weight->rms_error / (lr * update->rms) : 0;
}

const char *tsr_finding_level_name(enum tsr_finding_level level)
{
	static const char *const levels[] = { "fine", "watch", "bad" };

	return levels[level];
}

enum tsr_finding_level tsr_update_level(double nmse)
{
	if (nmse < TSR_UPDATE_WATCH)
		return TSR_FINDING_FINE;
	return nmse < TSR_UPDATE_BAD ? TSR_FINDING_WATCH : TSR_FINDING_BAD;
}

double tsr_measure_error(const struct tsr_measure *m, enum tsr_metric metric)
{
	const struct tsr_measured found = tsr_measure_result(m);

	return tsr_measured_error(&found, metric);
}

double tsr_measure_value(const struct tsr_measure *m, enum tsr_metric metric)
{
	const struct tsr_measured found = tsr_measure_result(m);

	return tsr_measured_value(&found, metric);
}
