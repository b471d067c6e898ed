/* SPDX-License-Identifier: Apache-2.0 */
/* What is behind the first difference of two runs. */
#include "bisect/comparing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "step/hyperparameters.h"

/* --- Hyperparameters --------------------------------------------------------------------------- */

static struct tsr_bisect_hyper *add_hyper(struct tsr_bisect *r, const char *name, uint64_t group,
					  uint64_t step)
{
	struct tsr_bisect_hyper *h = &r->hyper[r->nhypers];

	if (r->nhypers == TSR_BISECT_HYPERS_MAX)
		return NULL;
	r->nhypers++;
	h->name = name;
	h->group = group;
	h->step = step;
	return h;
}

static void compare_numbers(struct tsr_bisect *r, const char *name, uint64_t group, uint64_t step,
			    double a, double b)
{
	struct tsr_bisect_hyper *h;

	if (a == b || isnan(a) || isnan(b))
		return;
	h = add_hyper(r, name, group, step);
	if (h) {
		h->value[0] = a;
		h->value[1] = b;
	}
}

/* "" is not recorded. */
static void compare_words(struct tsr_bisect *r, const char *name, const char *a, const char *b)
{
	struct tsr_bisect_hyper *h;

	if (!*a || !*b || strcmp(a, b) == 0)
		return;
	h = add_hyper(r, name, 0, 0);
	if (h) {
		h->text = true;
		snprintf(h->words[0], sizeof(h->words[0]), "%s", a);
		snprintf(h->words[1], sizeof(h->words[1]), "%s", b);
	}
}

static double value_of(const struct tsr_hyper *h, enum tsr_hyper_name name)
{
	if (tsr_hyper_is_set(h, name))
		return h->value[name];
	return tsr_hyper_is_switch(name) && h->set ? 0 : (double)NAN;
}

static const char *optimizer_of(const struct tsr_recording *run)
{
	return run->optimizer == TSR_OPTIMIZER_COUNT ? "" : tsr_optimizer_name(run->optimizer);
}

void tsr_compare_groups(struct tsr_comparing *c)
{
	const struct tsr_recording *a = c->side[0].pub.run, *b = c->side[1].pub.run;
	struct tsr_bisect *r = c->result;

	if (!a || !b)
		return;
	compare_words(r, "optimizer", optimizer_of(a), optimizer_of(b));
	compare_words(r, "order", a->run.order, b->run.order);
	compare_words(r, "pytorch", a->run.pytorch, b->run.pytorch);
	compare_words(r, "device", a->run.device, b->run.device);
	compare_numbers(r, "param_groups", 0, 0, (double)a->ngroups, (double)b->ngroups);
	for (size_t g = 0; g < a->ngroups && g < b->ngroups; g++) {
		for (unsigned i = 0; i < TSR_HYPER_COUNT; i++) {
			const enum tsr_hyper_name name = (enum tsr_hyper_name)i;

			compare_numbers(r, tsr_hyper_name(name), g, 0,
					value_of(&a->groups[g].hyper, name),
					value_of(&b->groups[g].hyper, name));
		}
	}
}

/* Learning rates of a group are noted once, at the first step that has others. */
static bool is_noted(const struct tsr_bisect *r, uint64_t group)
{
	for (unsigned i = 0; i < r->nhypers; i++) {
		if (r->hyper[i].step && r->hyper[i].group == group)
			return true;
	}
	return false;
}

void tsr_compare_rates(struct tsr_comparing *c, uint64_t step)
{
	const struct tsr_run_side *a = &c->side[0], *b = &c->side[1];

	if (!a->lr || !b->lr || !a->pub.run || !b->pub.run)
		return;
	for (size_t g = 0; g < a->pub.run->ngroups && g < b->pub.run->ngroups; g++) {
		if (a->lr[g] != b->lr[g] && !is_noted(c->result, g))
			compare_numbers(c->result, "lr", g, step, a->lr[g], b->lr[g]);
	}
}

/* Whether numbers differ that enter a step, up to this one; another order of operations is no number. */
static bool hypers_differ(const struct tsr_bisect *r)
{
	for (unsigned i = 0; i < r->nhypers; i++) {
		if (!r->hyper[i].text || strcmp(r->hyper[i].name, "optimizer") == 0)
			return true;
	}
	return false;
}

/* The first step that has others: those of all steps have it from the first one on. */
static uint64_t first_hyper(const struct tsr_bisect *r)
{
	uint64_t first = UINT64_MAX;

	for (unsigned i = 0; i < r->nhypers; i++) {
		const uint64_t step = r->hyper[i].step ? r->hyper[i].step : r->first_common;

		if (!r->hyper[i].text || strcmp(r->hyper[i].name, "optimizer") == 0)
			first = step < first ? step : first;
	}
	return first;
}

/* --- The cause --------------------------------------------------------------------------------- */

static bool ranks_disagree(const struct tsr_bisect *r)
{
	return r->side[0].ranks.name || r->side[1].ranks.name;
}

/* @known: the states before the step are. */
static enum tsr_bisect_cause cause_of(const struct tsr_bisect *r,
				      const struct tsr_step_found *found,
				      const struct tsr_step_found *last, bool known)
{
	if (ranks_disagree(r))
		return TSR_BISECT_RANKS;
	if (!found->gradients_differ && !found->states_differ)
		return TSR_BISECT_EQUAL;
	if (found->gradients_differ)
		return TSR_BISECT_GRADIENT;
	if (!last && !found->gradients && r->nsteps > 1)
		return TSR_BISECT_LOADED;
	if (hypers_differ(r))
		return TSR_BISECT_HYPERPARAMETERS;
	return found->gradients && known ? TSR_BISECT_OPTIMIZER : TSR_BISECT_STATE;
}

void tsr_judge_step(struct tsr_comparing *c, const struct tsr_step_found *found,
		    const struct tsr_step_found *last)
{
	const bool known = last && last->states && last->step + 1 == found->step;
	struct tsr_bisect *r = c->result;

	r->cause = cause_of(r, found, last, known);
	if (r->cause == TSR_BISECT_EQUAL)
		return;
	r->step = found->step;
	r->before = last ? last->step : found->step;
	r->known_before = known;
}

void tsr_judge_rest(struct tsr_comparing *c)
{
	struct tsr_bisect *r = c->result;

	if (r->cause != TSR_BISECT_EQUAL)
		return;
	r->step = r->before = r->first_common;
	if (hypers_differ(r)) {
		r->cause = TSR_BISECT_HYPERPARAMETERS;
		r->step = r->before = first_hyper(r);
	} else if (r->npaired != r->ntensors) {
		r->cause = TSR_BISECT_TENSORS;
	}
}
