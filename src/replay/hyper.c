/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps are replayed, by which rule, with which hyperparameters. */
#include "replay/replay_plan.h"

#include <stdio.h>

#include "base/fail.h"
#include "ckpt/build.h"
#include "recording/schedule.h"
#include "step/combinations.h"
#include "step/hyperparameters.h"

/* --- Steps ------------------------------------------------------------------------------------ */

enum tsr_status tsr_replay_choose_steps(struct tsr_replaying *r)
{
	const struct tsr_replay_options *o = r->options;
	const struct tsr_recording *recording = r->recording;
	uint64_t first, last;

	if (!recording->nsteps)
		return tsr_fail(r->err, TSR_E_FORMAT, "%s: found no steps, expected one or more",
				recording->path);
	first = recording->steps[0].step;
	last = recording->steps[recording->nsteps - 1].step;
	if ((o->first_step && (o->first_step < first || o->first_step > last)) ||
	    (o->last_step && (o->last_step < first || o->last_step > last)))
		return tsr_fail_hint(r->err, TSR_E_USAGE, TSR_HINT_STEPS,
				     "%s: found steps %" PRIu64 " to %" PRIu64
				     ", not all that were asked for",
				     recording->path, first, last);
	r->first = o->first_step ? (size_t)(o->first_step - first) : 0;
	r->result->nsteps = (size_t)((o->last_step ? o->last_step : last) - first) + 1 - r->first;
	TSR_TRY(TSR_TAKE(&r->result->steps, r->result->nsteps, r->result->arena, r->err,
			 recording->path));
	for (size_t i = 0; i < r->result->nsteps; i++)
		r->result->steps[i].step = recording->steps[r->first + i].step;
	return TSR_OK;
}

/* --- Learning rates --------------------------------------------------------------------------- */

/*
 * The requested lr, else that of @schedule (per group; NULL: none), else that recorded for the step,
 * else that of its group.
 */
static bool find_lr(const struct tsr_replaying *r, const double *schedule,
		    const struct tsr_recording_step *recorded, size_t group, double *ret)
{
	const struct tsr_hyper *h = &r->recording->groups[group].hyper;

	if (tsr_hyper_is_set(&r->options->hyper, TSR_HYPER_LR))
		*ret = r->options->hyper.value[TSR_HYPER_LR];
	else if (schedule)
		*ret = schedule[group];
	else if (recorded->lr)
		*ret = recorded->lr[group];
	else if (tsr_hyper_is_set(h, TSR_HYPER_LR))
		*ret = h->value[TSR_HYPER_LR];
	else
		return false;
	return true;
}

static enum tsr_status fill_lr(struct tsr_replaying *r, const double *schedule)
{
	const size_t ngroups = r->result->ngroups;

	for (size_t i = 0; i < r->result->nsteps; i++) {
		const struct tsr_recording_step *recorded = &r->recording->steps[r->first + i];
		const double *planned = schedule ? schedule + i * ngroups : NULL;
		double *lr = r->result->lr + i * ngroups;

		r->result->steps[i].lr = lr;
		for (size_t g = 0; g < ngroups; g++) {
			if (!find_lr(r, planned, recorded, g, &lr[g]))
				return tsr_fail_hint(r->err, TSR_E_UNSUPPORTED, TSR_HINT_LR,
						     "%s: step %" PRIu64
						     ": found no lr, expected one",
						     r->recording->path, r->result->steps[i].step);
		}
	}
	return TSR_OK;
}

/* --- Hyperparameters -------------------------------------------------------------------------- */

static enum tsr_status choose_optimizer(struct tsr_replaying *r)
{
	r->result->optimizer = r->options->optimizer != TSR_OPTIMIZER_COUNT
				       ? r->options->optimizer
				       : r->recording->optimizer;
	if (r->result->optimizer == TSR_OPTIMIZER_COUNT)
		return tsr_fail_hint(r->err, TSR_E_USAGE, TSR_HINT_OPTIMIZER,
				     "%s: does not say which optimizer to replay",
				     r->recording->path);
	if (r->recording->optimizer == TSR_OPTIMIZER_COUNT ||
	    r->recording->optimizer == r->result->optimizer)
		return TSR_OK;
	return tsr_build_note(r->c, r->err, "%.200s: was recorded with %s, but %s is replayed",
			      r->recording->path, tsr_optimizer_name(r->recording->optimizer),
			      tsr_optimizer_name(r->result->optimizer));
}

/* The recorded order, unless another one is meant, or it has no step for the form that is asked for. */
static enum tsr_status choose_order(struct tsr_replaying *r)
{
	const struct tsr_replay_options *o = r->options;
	const enum tsr_order recorded = r->recording->order;
	const char *why;

	r->result->order = o->order;
	r->result->order_from = o->order_given || o->order != TSR_ORDER_TORCH_CPU
					? TSR_ORDER_FROM_OPTION
					: TSR_ORDER_FROM_DEFAULT;
	r->result->recorded = r->recording->run;
	if (r->result->order_from == TSR_ORDER_FROM_OPTION || recorded == TSR_ORDER_COUNT)
		return TSR_OK;
	if (!tsr_order_has(recorded, r->result->optimizer))
		return tsr_build_note(r->c, r->err,
				      "%.200s: was recorded in the order %s, which has no %s",
				      r->recording->path, tsr_order_name(recorded),
				      tsr_optimizer_name(r->result->optimizer));
	why = tsr_step_refusal(r->result->optimizer, recorded, o->coding[TSR_SLOT_MOMENTUM].codec,
			       o->coding[TSR_SLOT_VARIANCE].codec);
	if (why)
		return tsr_build_note(r->c, r->err, "%.200s: was recorded in the order %s: %s",
				      r->recording->path, tsr_order_name(recorded), why);
	r->result->order = recorded;
	r->result->order_from = TSR_ORDER_FROM_RECORDING;
	return TSR_OK;
}

/*
 * The lr that a run began with, if the recording does not say: that of its first step, whichever
 * step is replayed first, so that a replay in parts gives the same result as a whole one.
 */
static enum tsr_status find_initial_lr(struct tsr_replaying *r, size_t group, double *ret)
{
	const struct tsr_recording_step *first = &r->recording->steps[0];
	TSR_OWNED(free) double *schedule = NULL;

	*ret = r->result->steps[0].lr[group];
	if (r->options->schedule && !tsr_hyper_is_set(&r->options->hyper, TSR_HYPER_LR)) {
		/* Only decoupled decay needs it: the schedule may begin later. */
		if (r->result->hyper[group].value[TSR_HYPER_DECOUPLE_LR] == 0)
			return TSR_OK;
		TSR_TRY(tsr_schedule_load(r->options->schedule, first->step, 1, r->result->ngroups,
					  &schedule, r->err));
	}
	(void)find_lr(r, schedule, first, group, ret);
	return TSR_OK;
}

static enum tsr_status choose_group(struct tsr_replaying *r, size_t group)
{
	static const enum tsr_hyper_name matter[] = { TSR_HYPER_MAXIMIZE, TSR_HYPER_AMSGRAD };
	struct tsr_hyper *h = &r->result->hyper[group];
	double initial;

	*h = r->recording->groups[group].hyper;
	/* Programs settle it when they make the state: another beta2 does not change it. */
	if (r->result->optimizer == TSR_OPTIMIZER_SOAP && tsr_hyper_is_set(h, TSR_HYPER_BETA2) &&
	    !tsr_hyper_is_set(h, TSR_HYPER_SHAMPOO_BETA))
		tsr_hyper_put(h, TSR_HYPER_SHAMPOO_BETA, h->value[TSR_HYPER_BETA2]);
	tsr_hyper_override(h, &r->options->hyper);
	if (!tsr_hyper_is_set(h, TSR_HYPER_INITIAL_LR)) {
		TSR_TRY(find_initial_lr(r, group, &initial));
		tsr_hyper_put(h, TSR_HYPER_INITIAL_LR, initial);
	}
	tsr_hyper_put(h, TSR_HYPER_LR, r->result->steps[0].lr[group]);
	tsr_hyper_defaults(h, r->result->optimizer);
	/* One that the optimizer does not use makes no difference, but for these. */
	for (size_t i = 0; i < sizeof(matter) / sizeof(*matter); i++) {
		if (tsr_hyper_is_on(h, matter[i]) &&
		    !tsr_optimizer_uses(r->result->optimizer, matter[i]))
			return tsr_fail(r->err, TSR_E_UNSUPPORTED,
					"%s: group %zu: %s: found true, which %s cannot be "
					"replayed with",
					r->recording->path, group, tsr_hyper_name(matter[i]),
					tsr_optimizer_name(r->result->optimizer));
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_choose_hyper(struct tsr_replaying *r)
{
	struct tsr_replay *result = r->result;
	TSR_OWNED(free) double *schedule = NULL;
	char where[700];
	enum tsr_optimizer optimizer;

	TSR_TRY(choose_optimizer(r));
	TSR_TRY(choose_order(r));
	/* A requested hyperparameter that the optimizer does not use is a mistake; a recorded one is not. */
	optimizer = r->result->optimizer;
	for (unsigned i = 0; i < TSR_HYPER_COUNT; i++) {
		const enum tsr_hyper_name name = (enum tsr_hyper_name)i;

		if (tsr_hyper_is_set(&r->options->hyper, name) &&
		    !tsr_optimizer_uses(optimizer, name))
			return tsr_fail(r->err, TSR_E_USAGE, "%s: %s has no hyperparameter %s",
					r->recording->path, tsr_optimizer_name(optimizer),
					tsr_hyper_name(name));
	}
	result->ngroups = r->recording->ngroups;
	TSR_TRY(TSR_TAKE(&result->lr, result->nsteps * result->ngroups + 1, result->arena, r->err,
			 r->recording->path));
	TSR_TRY(TSR_TAKE(&result->hyper, result->ngroups + 1, result->arena, r->err,
			 r->recording->path));
	if (r->options->schedule)
		TSR_TRY(tsr_schedule_load(r->options->schedule, result->steps[0].step,
					  result->nsteps, result->ngroups, &schedule, r->err));
	TSR_TRY(fill_lr(r, schedule));
	for (size_t g = 0; g < result->ngroups; g++) {
		TSR_TRY(choose_group(r, g));
		/* Check every step: the lr of any may be out of range. */
		for (size_t i = 0; i < r->result->nsteps; i++) {
			struct tsr_hyper h = r->result->hyper[g];

			snprintf(where, sizeof(where), "%.500s: step %" PRIu64 ": group %zu",
				 r->recording->path, r->result->steps[i].step, g);
			tsr_hyper_put(&h, TSR_HYPER_LR, r->result->steps[i].lr[g]);
			TSR_TRY(tsr_hyper_check(&h, r->result->optimizer, where, r->err));
		}
	}
	return TSR_OK;
}
