/* SPDX-License-Identifier: Apache-2.0 */
/* What the figures of a replay say, in words. */

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "replay/replay_result.h"
#include "replay/findings/replay_figures.h"
#include "tersor/escape.h"

static void add(struct tsr_findings *f, enum tsr_finding_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void add(struct tsr_findings *f, enum tsr_finding_level level, const char *fmt, ...)
{
	struct tsr_finding *item = &f->item[f->n];
	va_list ap;

	if (f->n == TSR_FINDINGS_MAX)
		return;
	f->n++;
	item->level = level;
	va_start(ap, fmt);
	vsnprintf(item->text, sizeof(item->text), fmt, ap);
	va_end(ap);
}

/* Part of a sentence. */
struct words {
	char text[128];
};

/* A name within a sentence. */
static struct words name_of(const struct tsr_replay *r, size_t param)
{
	struct words out;

	tsr_escape(out.text, 120, r->params[param]);
	return out;
}

/* A share in percent; 100% and 0% only if exact. */
static struct words share_of(double some, uint64_t whole)
{
	const double percent = whole ? 100 * some / (double)whole : 0;
	struct words out;

	if (percent <= 0 || percent >= 100)
		snprintf(out.text, sizeof(out.text), "%d%%", percent > 0 ? 100 : 0);
	else if (percent < 0.01 || percent > 99.99)
		snprintf(out.text, sizeof(out.text), "%s", percent < 1 ? "<0.01%" : ">99.99%");
	else
		snprintf(out.text, sizeof(out.text), "%.3g%%", percent > 99.9 ? 99.9 : percent);
	return out;
}

/* How many tensors reach this error at any step. */
static size_t count_tensors(const struct tsr_replay *r, enum tsr_figure_name name, double limit)
{
	size_t n = 0;

	for (size_t p = 0; p < r->nparams; p++) {
		bool reaches = false;

		for (size_t i = 0; i < r->nsteps && !reaches; i++)
			reaches = tsr_replay_has_figures(r, i) &&
				  tsr_figure_error(&r->steps[i].tensors[p], name) >= limit;
		n += reaches;
	}
	return n;
}

/* The first step at which a tensor reaches this error. */
static size_t first_step(const struct tsr_replay *r, enum tsr_figure_name name, double limit)
{
	for (size_t i = 0; i < r->nsteps; i++) {
		const struct tsr_replay_worst w = tsr_replay_worst_at(r, i, name);

		if (w.any && tsr_figure_error(&r->steps[i].tensors[w.param], name) >= limit)
			return i;
	}
	return 0;
}

/* --- Findings --------------------------------------------------------------------------------- */

/* Values that arithmetic cannot recover from. */
static void find_infinite(const struct tsr_replay *r, struct tsr_findings *f)
{
	struct tsr_replay_worst w;

	for (unsigned i = 0; i < TSR_FIGURE_COUNT; i++) {
		w = tsr_replay_worst(r, (enum tsr_figure_name)i);
		if (!w.any || !isinf(w.value))
			continue;
		add(f, TSR_FINDING_BAD,
		    "%s of %s is infinite from step %" PRIu64
		    " on: the replay has values there that are not finite, or that FP32 leaves at "
		    "zero.",
		    tsr_figure_name((enum tsr_figure_name)i), name_of(r, w.param).text,
		    r->steps[w.step].step);
		return;
	}
}

static void find_divergence(const struct tsr_replay *r, struct tsr_findings *f)
{
	const struct tsr_replay_worst w = tsr_replay_worst(r, TSR_FIGURE_UPDATE_NMSE);
	const enum tsr_finding_level level = tsr_update_level(w.value);
	const bool diverged = w.value >= TSR_REPLAY_DIVERGED;
	const double limit = diverged			? TSR_REPLAY_DIVERGED
			     : level == TSR_FINDING_BAD ? TSR_UPDATE_BAD
							: TSR_UPDATE_WATCH;
	const size_t n = count_tensors(r, TSR_FIGURE_UPDATE_NMSE, limit);

	/* find_infinite() reports infinite errors. */
	if (!w.any || isinf(w.value))
		return;
	if (diverged)
		add(f, level,
		    "The replay has diverged from FP32 in %zu of %zu tensors, first at step "
		    "%" PRIu64
		    ": the error of an update is as large as the update itself. Worst is %s at "
		    "step %" PRIu64 ", with an update-nmse of %.3g.",
		    n, r->nparams, r->steps[first_step(r, TSR_FIGURE_UPDATE_NMSE, limit)].step,
		    name_of(r, w.param).text, r->steps[w.step].step, w.value);
	else if (level != TSR_FINDING_FINE)
		add(f, level,
		    "Updates of %zu of %zu tensors are more than %.2g%% of their length off, first "
		    "at step %" PRIu64 ". Worst is %s at step %" PRIu64
		    ": %.3g%% (update-nmse %.3g).",
		    n, r->nparams, 100 * sqrt(limit),
		    r->steps[first_step(r, TSR_FIGURE_UPDATE_NMSE, limit)].step,
		    name_of(r, w.param).text, r->steps[w.step].step, 100 * sqrt(w.value), w.value);
	else
		add(f, level,
		    "Every update of every tensor is within %.2g%% of its length of FP32's "
		    "(update-nmse at most %.3g: %s at step %" PRIu64 ").",
		    100 * sqrt(w.value), w.value, name_of(r, w.param).text, r->steps[w.step].step);
}

/* Of the tensors with bad updates, the one that loses most variances; false if none does. */
static bool find_sufferer(const struct tsr_replay *r, size_t *param_ret, double *lost_ret)
{
	*lost_ret = 0;
	for (size_t p = 0; p < r->nparams; p++) {
		const double lost = tsr_replay_largest(r, p, TSR_FIGURE_VARIANCE_LOST);

		if (!(lost > *lost_ret) ||
		    !(tsr_replay_largest(r, p, TSR_FIGURE_UPDATE_NMSE) >= TSR_UPDATE_BAD))
			continue;
		*lost_ret = lost;
		*param_ret = p;
	}
	return *lost_ret > 0;
}

/* Only if updates suffer: companded codes also store the smallest values of a group as 0. */
static void find_lost_variance(const struct tsr_replay *r, struct tsr_findings *f)
{
	const struct tsr_codec *codec = r->coding[TSR_SLOT_VARIANCE].codec;
	const size_t step = tsr_replay_worst_step(r, TSR_FIGURE_VARIANCE_LOST);
	size_t param = 0;
	double lost, sum;

	if (!find_sufferer(r, &param, &lost) || step == SIZE_MAX)
		return;
	sum = r->steps[step].total.value[TSR_FIGURE_VARIANCE_LOST];
	add(f,
	    tsr_replay_largest(r, param, TSR_FIGURE_UPDATE_NMSE) >= TSR_REPLAY_DIVERGED
		    ? TSR_FINDING_BAD
		    : TSR_FINDING_WATCH,
	    "%s stores variances as 0 that are not: %s of all at step %" PRIu64
	    ", at most %s of %s. The next update of such a weight is divided by little more than "
	    "its last gradient and eps, and explodes where the momentum survived. %s",
	    codec ? codec->name : "The codec", share_of(sum, tsr_replay_numel(r, SIZE_MAX)).text,
	    r->steps[step].step, share_of(lost, tsr_replay_numel(r, param)).text,
	    name_of(r, param).text,
	    codec && codec->companding == TSR_COMPANDING_LINEAR
		    ? "Companded variances (sqrt8) reach far lower."
		    : "Variances in bf16 keep their range.");
}

static void find_underflow(const struct tsr_replay *r, struct tsr_findings *f)
{
	const struct tsr_replay_worst w = tsr_replay_worst(r, TSR_FIGURE_UNDERFLOW);
	const size_t step = tsr_replay_worst_step(r, TSR_FIGURE_UNDERFLOW);
	const uint64_t groups = tsr_replay_ngroups(r, SIZE_MAX);
	const uint64_t there = w.any ? tsr_replay_ngroups(r, w.param) : 0;
	double lost;

	if (!w.any || step == SIZE_MAX)
		return;
	lost = r->steps[step].total.value[TSR_FIGURE_UNDERFLOW];
	add(f, TSR_FINDING_BAD,
	    "Scales underflow: at step %" PRIu64 " %.0f of %" PRIu64
	    " groups (%s) have a scale stored as 0 and lose their momentum or variance, in %zu of "
	    "%zu tensors over all steps. Worst is %s: %.0f of %" PRIu64 " (%s) at step %" PRIu64
	    ". Scales in e8m8 have the range of FP32.",
	    r->steps[step].step, lost, groups, share_of(lost, groups).text,
	    count_tensors(r, TSR_FIGURE_UNDERFLOW, 1), r->nparams, name_of(r, w.param).text,
	    w.value, there, share_of(w.value, there).text, r->steps[w.step].step);
}

/* Weights whose stored form is too coarse for the updates. */
static void find_coarse_weights(const struct tsr_replay *r, struct tsr_findings *f)
{
	const struct tsr_replay_worst w = tsr_replay_worst(r, TSR_FIGURE_UPDATE_QUANT);
	const struct tsr_codec *codec = r->coding[TSR_SLOT_WEIGHT].codec;
	const uint64_t n = tsr_replay_numel(r, SIZE_MAX);
	const size_t worst = tsr_replay_worst_step(r, TSR_FIGURE_STALLED);
	const size_t step = worst == SIZE_MAX ? w.step : worst;
	double stalled;

	if (!w.any || isinf(w.value))
		return;
	stalled = r->steps[step].total.value[TSR_FIGURE_STALLED];
	if (w.value < TSR_REPLAY_DIVERGED && stalled < TSR_REPLAY_STALLED * (double)n)
		return;
	add(f, TSR_FINDING_WATCH,
	    "Weights in %s are too coarse for these updates: %s of them are stalled at step "
	    "%" PRIu64 ", where the update moves them in FP32 and what is stored stays. Storing "
	    "costs an update of %s %.3g%% of its length (update-quant %.3g at step %" PRIu64 ").",
	    codec ? codec->name : "their codec", share_of(stalled, n).text, r->steps[step].step,
	    name_of(r, w.param).text, 100 * sqrt(w.value), w.value, r->steps[w.step].step);
}

void tsr_replay_find(const struct tsr_replay *r, struct tsr_findings *ret)
{
	ret->n = 0;
	if (!r->compared)
		return;
	find_divergence(r, ret);
	find_infinite(r, ret);
	find_lost_variance(r, ret);
	find_underflow(r, ret);
	find_coarse_weights(r, ret);
	/* The most serious first; equals keep their order. */
	for (unsigned i = 1; i < ret->n; i++) {
		for (unsigned j = i; j && ret->item[j].level > ret->item[j - 1].level; j--) {
			const struct tsr_finding moved = ret->item[j];

			ret->item[j] = ret->item[j - 1];
			ret->item[j - 1] = moved;
		}
	}
}
