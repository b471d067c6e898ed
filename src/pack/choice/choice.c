/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing the codecs of tensors by the errors that they turn out to have. */
#include "pack/choice/choice.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/option_size.h"
#include "base/order.h"
#include "pack/choice/choice_units.h"

#define BOUND_DEFAULT 1e-4

struct tsr_choice_options tsr_choice_defaults(void)
{
	static const struct {
		const char *momentum, *variance;
	} pairs[] = {
		{ "dyn8", "dyn8" },    { "e4m3", "e4m3" },   { "e4m3x", "e4m3x" },
		{ "ratio8", "sqrt8" }, { "ratio8", "log8" }, { "softsign8", "sqrt8" },
		{ "bf16", "bf16" },
	};
	struct tsr_choice_options o = {
		.size = sizeof(o),
		.ncandidates = sizeof(pairs) / sizeof(*pairs),
		.bound = BOUND_DEFAULT,
		.weight_steps = true,
	};

	for (unsigned i = 0; i < o.ncandidates; i++) {
		o.candidates[i].momentum = tsr_coding_default(tsr_codec_find(pairs[i].momentum));
		o.candidates[i].variance = tsr_coding_default(tsr_codec_find(pairs[i].variance));
	}
	return o;
}

enum tsr_status tsr_choice_take(struct tsr_choice_options *o,
				const struct tsr_choice_options *given, struct tsr_err *err)
{
	*o = tsr_choice_defaults();
	TSR_TRY(tsr_options_take(o, given, err));
	if (!o->ncandidates || o->ncandidates > TSR_CANDIDATES_MAX)
		return tsr_fail(err, TSR_E_USAGE, "found %u candidates, expected 1 to %u",
				o->ncandidates, TSR_CANDIDATES_MAX);
	if (!(o->bound >= 0))
		return tsr_fail(err, TSR_E_USAGE, "found a bound of %g, expected 0 or more",
				o->bound);
	return TSR_OK;
}

bool tsr_choice_add_weights(struct tsr_choice_options *o)
{
	static const char *const names[] = { "bf16+ulp8", "bf16+rn10", "bf16+rn12", "bf16+ulp16" };
	const unsigned n = sizeof(names) / sizeof(*names);

	for (unsigned i = 0; i < o->ncandidates; i++) {
		if (o->candidates[i].weight.codec)
			return false;
	}
	if (o->ncandidates + n > TSR_CANDIDATES_MAX)
		return false;
	for (unsigned i = 0; i < n; i++)
		o->candidates[o->ncandidates++] = (struct tsr_candidate){
			.weight = tsr_coding_default(tsr_codec_find(names[i]))
		};
	return true;
}

/* --- By a bound ---------------------------------------------------------------------------------- */

/* Choose the first option within the bound, of those tried; of corrections the last one is fine enough. */
static void choose_within(struct tsr_choice_unit *u, double bound)
{
	u->chosen = 0;
	while (u->chosen < u->ntried && !(u->options[u->chosen].error <= bound))
		u->chosen++;
	if (u->chosen == u->ntried)
		u->chosen = u->by_step && u->ntried ? u->ntried - 1 : u->noptions;
}

static void give_all(const struct tsr_choosing *choosing, const struct tsr_choice_units *units,
		     double bound)
{
	for (size_t i = 0; i < units->n; i++) {
		struct tsr_choice_unit *u = &units->list[i];

		choose_within(u, tsr_choice_unit_bound(u, bound));
		tsr_choice_unit_give(choosing->encoding->wanted, choosing->choice, u, u->chosen);
	}
}

/* --- By a budget --------------------------------------------------------------------------------- */

TSR_COMPARE(by_value, double, TSR_ORDER(*a, *b))

/* All errors that a bound can be: 0, as of raw tensors, and those of options, ascending. */
static enum tsr_status list_bounds(const struct tsr_choice_units *units, double **ret,
				   size_t *n_ret, struct tsr_err *err)
{
	size_t n = 1, ntried = 1;
	double *bounds;

	for (size_t i = 0; i < units->n; i++)
		ntried += units->list[i].ntried;
	TSR_TRY(TSR_NEW(&bounds, ntried, err, "errors of candidates"));
	bounds[0] = 0;
	for (size_t i = 0; i < units->n; i++) {
		const struct tsr_choice_unit *u = &units->list[i];

		for (unsigned k = 0; k < u->ntried; k++) {
			if (u->options[k].error < INFINITY)
				bounds[n++] = u->options[k].error;
		}
	}
	qsort(bounds, n, sizeof(*bounds), by_value);
	*ret = bounds;
	*n_ret = n;
	return TSR_OK;
}

/* Choose by the least of @n bounds that fits; with the last one where none does. */
static enum tsr_status fit(const struct tsr_choosing *choosing,
			   const struct tsr_choice_units *units, const double *bounds, size_t n,
			   double *bound_ret, struct tsr_err *err)
{
	size_t low = 0, high = n - 1;
	uint64_t nbytes;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		give_all(choosing, units, bounds[middle]);
		TSR_TRY(choosing->size(choosing->ctx, &nbytes));
		if (nbytes <= choosing->choice->max_nbytes)
			high = middle;
		else
			low = middle + 1;
	}
	*bound_ret = bounds[low];
	give_all(choosing, units, bounds[low]);
	TSR_TRY(choosing->size(choosing->ctx, &nbytes));
	if (nbytes <= choosing->choice->max_nbytes)
		return TSR_OK;
	return tsr_fail_hint(err, TSR_E_BOUND, TSR_HINT_CANDIDATES,
			     "%s: found %" PRIu64
			     " bytes with the smallest codecs to choose from, expected at most "
			     "%" PRIu64 "; nothing written",
			     choosing->encoding->stored->path, nbytes,
			     choosing->choice->max_nbytes);
}

static enum tsr_status choose_by_budget(const struct tsr_choosing *choosing,
					struct tsr_choice_units *units, double *bound_ret,
					struct tsr_err *err)
{
	TSR_OWNED(free) double *bounds = NULL;
	size_t n = 0;

	TSR_TRY(tsr_choice_try(choosing, units, -1, err));
	TSR_TRY(list_bounds(units, &bounds, &n, err));
	return fit(choosing, units, bounds, n, bound_ret, err);
}

/* --- What was chosen ----------------------------------------------------------------------------- */

/* Of the options with fewer bytes than the chosen one, that with the least error; noptions: none. */
static unsigned refused_by(const struct tsr_choice_unit *u)
{
	unsigned least = u->noptions;

	for (unsigned k = 0; k < u->chosen && k < u->ntried; k++) {
		if (least == u->noptions || u->options[k].error < u->options[least].error)
			least = k;
	}
	return least;
}

/* Leave nothing of the trials but what says why a tensor stays raw. */
static void forget(const struct tsr_encoding *e)
{
	for (size_t i = 0; i < e->wanted->ntensors; i++) {
		struct tsr_packed_tensor *r = &e->results[i];

		r->update = (struct tsr_update_measured){ 0 };
		if (r->raw != TSR_RAW_NO && r->raw < TSR_RAW_SMALL)
			continue;
		r->measure = (struct tsr_measured){ 0 };
		r->report = (struct tsr_encode_report){ 0 };
	}
}

static void explain(const struct tsr_choosing *choosing, struct tsr_choice_unit *u)
{
	const struct tsr_checkpoint *c = choosing->encoding->wanted;
	const unsigned refused = refused_by(u);
	const bool raw = u->chosen == u->noptions;

	for (unsigned s = 0; s < u->n; s++) {
		struct tsr_packed_tensor *r = &choosing->encoding->results[u->tensor[s]];
		struct tsr_choice *choice = &choosing->choices[u->tensor[s]];

		choice->ntried = u->ntried;
		choice->metric = u->by_step		      ? TSR_METRIC_WEIGHT_STEP
				 : tsr_choice_unit_is_pair(u) ? TSR_METRIC_UPDATE_NMSE
							      : TSR_METRIC_NMSE;
		choice->error = raw ? 0 : u->options[u->chosen].error;
		if (refused < u->noptions) {
			tsr_choice_unit_give(c, choosing->choice, u, refused);
			choice->refused = c->tensors[u->tensor[s]].coding;
			choice->refused_error = u->options[refused].error;
		}
		if (raw || u->nonfinite[s])
			r->raw = u->reason[s] != TSR_RAW_NO ? u->reason[s] : TSR_RAW_CHOICE;
	}
	tsr_choice_unit_give(c, choosing->choice, u, u->chosen);
}

enum tsr_status tsr_choose(const struct tsr_choosing *choosing, double *bound_ret,
			   struct tsr_err *err)
{
	TSR_SCOPED(tsr_choice_units_free) struct tsr_choice_units units = { .n = 0 };
	enum tsr_status status;

	*bound_ret = choosing->choice->bound;
	status = tsr_choice_units_find(choosing->encoding->wanted, choosing->choice,
				       choosing->given, choosing->encoding->results,
				       choosing->by_step, &units, err);
	TSR_THEN(status, choosing->choice->max_nbytes
				 ? choose_by_budget(choosing, &units, bound_ret, err)
				 : tsr_choice_try(choosing, &units, *bound_ret, err));
	if (status == TSR_OK && !choosing->choice->max_nbytes)
		give_all(choosing, &units, *bound_ret);
	for (size_t i = 0; i < units.n && (status == TSR_OK || status == TSR_E_BOUND); i++)
		explain(choosing, &units.list[i]);
	forget(choosing->encoding);
	return status;
}
