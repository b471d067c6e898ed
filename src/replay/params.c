/* SPDX-License-Identifier: Apache-2.0 */
/* Matching the parameters of a recording with the weights and states of the checkpoint. */
#include "replay/replay_plan.h"

#include <stdio.h>

#include "base/grow.h"
#include "base/order.h"
#include "io/file.h"
#include "text/named.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/read.h"
#include "text/shape.h"

struct matching {
	struct tsr_replaying *r;
	struct tsr_replay_param *params; /* of the recording */
	size_t nparams;
	bool *taken; /* per tensor: whether it is some parameter */
};

/* --- Parameters ------------------------------------------------------------------------------- */

/* A tensor with one element and no dimensions is a weight only if a rule says so. */
static bool has_scalar(const struct matching *m, const char *name)
{
	const struct tsr_tensor *t = tsr_checkpoint_find(m->r->c, name);

	return t && !t->rank && tsr_tensor_has_f32(t);
}

/* @path: the file that names it; @step: the number of the step, or 0 for a name of the manifest. */
static enum tsr_status add_param(struct matching *m, const char *name, size_t group,
				 const char *path, uint64_t step)
{
	struct tsr_replaying *r = m->r;
	struct tsr_replay_param *p;
	char where[64] = "";
	size_t tensor;

	if (step)
		snprintf(where, sizeof(where), "step %" PRIu64 ": ", step);
	TSR_TRY(tsr_parameters_weight(&r->parameters, name, &tensor, r->err));
	if (tensor == SIZE_MAX && has_scalar(m, name))
		return tsr_fail_hint(r->err, TSR_E_FORMAT, TSR_HINT_SCALAR_WEIGHT,
				     "%s: %stensor %.200s: found a tensor without dimensions in "
				     "%.300s, expected a weight",
				     path, where, name, r->c->path);
	if (tensor == SIZE_MAX)
		return tsr_fail(
			r->err, TSR_E_FORMAT,
			"%s: %stensor %.200s: found no weight of this name in %.300s, expected one",
			path, where, name, r->c->path);
	if (m->taken[tensor])
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: %stensor %.200s: is weight %.200s of the checkpoint, and so "
				"is another parameter of the recording",
				path, where, name, r->c->tensors[tensor].name);
	TSR_TRY(TSR_GROW(&m->params, m->nparams, r->err, r->c->path));
	m->taken[tensor] = true;
	p = &m->params[m->nparams++];
	*p = (struct tsr_replay_param){ .name = r->c->tensors[tensor].name,
					.recorded = name,
					.group = (unsigned)group,
					.numel = r->c->tensors[tensor].numel,
					.tensor = { tensor, SIZE_MAX, SIZE_MAX },
					.grad_dtype = TSR_F32,
					.counter = SIZE_MAX };
	return TSR_OK;
}

/* All names that the manifest lists, which are known before they are added. */
static enum tsr_status take_names(struct matching *m, bool known)
{
	const struct tsr_recording *recording = m->r->recording;

	for (size_t g = 0; g < recording->ngroups; g++) {
		const struct tsr_recording_group *group = &recording->groups[g];

		for (size_t i = 0; group->params && i < group->nparams; i++)
			TSR_TRY(known ? add_param(m, group->params[i], g, recording->path, 0)
				      : tsr_parameters_know(&m->r->parameters, group->params[i],
							    m->r->err));
	}
	return TSR_OK;
}

/* Index the first @n of what will be the replay's parameters by their recorded names. */
static enum tsr_status index_recorded(struct tsr_replaying *r,
				      const struct tsr_replay_param *params, size_t n)
{
	free(r->by_recorded);
	TSR_TRY(TSR_NEW(&r->by_recorded, n + 1, r->err, r->c->path));
	for (size_t i = 0; i < n; i++)
		r->by_recorded[i] = (struct tsr_named){ params[i].recorded, i };
	tsr_named_sort(r->by_recorded, n);
	return TSR_OK;
}

/* --- Gradients that are missing --------------------------------------------------------------- */

/* The first parameter without a gradient in the first such step; NULL: no step lacks one. */
static const struct tsr_replay_param *find_first(const struct tsr_replay_param *params, size_t n,
						 size_t nsteps)
{
	const struct tsr_replay_param *first = NULL;

	for (size_t i = 0; i < n; i++) {
		if (params[i].nseen < nsteps &&
		    (!first || params[i].first_missing < first->first_missing))
			first = &params[i];
	}
	return first;
}

static enum tsr_status refuse_missing(const struct tsr_replaying *r,
				      const struct tsr_replay_param *p)
{
	const struct tsr_recording_step *step = &r->recording->steps[r->first + p->first_missing];
	TSR_OWNED(free) char *path = tsr_path_join(r->recording->path, step->files[0]);

	if (!path)
		return tsr_fail_nomem(r->err, r->recording->path);
	return tsr_fail_hint(r->err, TSR_E_FORMAT, TSR_HINT_SKIP_MISSING,
			     "%s: step %" PRIu64
			     ": tensor %.200s: found no gradient of this parameter, expected one",
			     step->nfiles == 1 ? path : r->recording->path, step->step,
			     p->recorded);
}

/* List what all steps together lack; the first is an error if that is asked for. */
static enum tsr_status list_missing(struct tsr_replaying *r, const struct tsr_replay_param *params,
				    size_t n)
{
	struct tsr_replay *result = r->result;
	const struct tsr_replay_param *first = find_first(params, n, result->nsteps);
	size_t nmissing = 0;

	if (!first)
		return TSR_OK;
	if (r->options->on_missing == TSR_MISSING_FAIL)
		return refuse_missing(r, first);
	for (size_t i = 0; i < n; i++)
		nmissing += params[i].nseen < result->nsteps;
	TSR_TRY(TSR_TAKE(&result->missing, nmissing, result->arena, r->err, r->c->path));
	for (size_t i = 0; i < n; i++) {
		if (params[i].nseen == result->nsteps)
			continue;
		result->missing[result->nmissing++] = (struct tsr_replay_missing){
			.name = params[i].name,
			.first = result->steps[params[i].first_missing].step,
			.nsteps = result->nsteps - params[i].nseen,
		};
	}
	return TSR_OK;
}

/* --- Steps ------------------------------------------------------------------------------------ */

static enum tsr_status check_gradient(struct matching *m, const struct tsr_checkpoint *step,
				      const struct tsr_tensor *grad, size_t index)
{
	struct tsr_replaying *r = m->r;
	const struct tsr_named *named = tsr_named_find(r->by_recorded, m->nparams, grad->name);
	const uint64_t number = r->result->steps[index].step;
	const struct tsr_tensor *weight;
	struct tsr_replay_param *p;

	if (!named)
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: step %" PRIu64 ": tensor %.200s: is an extra gradient: no "
				"group of the recording has this parameter",
				step->path, number, grad->name);
	p = &m->params[named->index];
	weight = &r->c->tensors[p->tensor[TSR_SLOT_WEIGHT]];
	/* Note that a step has a gradient for the parameter; steps come in their order. */
	p->first_missing += p->first_missing == index;
	p->nseen++;
	if (!index)
		p->grad_dtype = grad->dtype;
	if (tsr_tensor_same_shape(grad, weight))
		return TSR_OK;
	return tsr_fail(
		r->err, TSR_E_FORMAT,
		"%s: step %" PRIu64 ": tensor %.200s: found shape %s, expected %s as %.200s has",
		step->path, number, grad->name, tsr_shape_words(grad->rank, grad->shape).text,
		tsr_shape_words(weight->rank, weight->shape).text, weight->name);
}

/* Add a parameter for every gradient with a new name. */
static enum tsr_status add_gradients(struct matching *m, const struct tsr_checkpoint *step,
				     uint64_t number)
{
	struct tsr_replaying *r = m->r;
	const size_t had = m->nparams;

	for (size_t i = 0; i < step->ntensors; i++) {
		if (!step->tensors[i].rank)
			TSR_TRY(tsr_parameters_know(&r->parameters, step->tensors[i].name, r->err));
	}
	TSR_TRY(tsr_parameters_update(&r->parameters, r->err));
	for (size_t i = 0; i < step->ntensors; i++) {
		const char *name = step->tensors[i].name;

		/* After the first step, names are rarely new. */
		if (tsr_named_find(r->by_recorded, had, name))
			continue;
		name = tsr_arena_string(r->c->arena, name);
		if (!name)
			return tsr_build_nomem(r->c, r->err);
		TSR_TRY(add_param(m, name, 0, step->path, number));
	}
	return m->nparams > had ? index_recorded(r, m->params, m->nparams) : TSR_OK;
}

static enum tsr_status look_at_step(struct matching *m, size_t index)
{
	struct tsr_replaying *r = m->r;
	struct tsr_replay_step *s = &r->result->steps[index];
	TSR_OWNED(tsr_checkpoint_close) struct tsr_checkpoint *step = NULL;

	TSR_TRY(tsr_recording_open_step(r->recording, r->first + index, &step, r->err));
	if (!tsr_replay_is_listed(r->recording))
		TSR_TRY(add_gradients(m, step, s->step));
	for (size_t i = 0; i < step->ntensors; i++) {
		TSR_TRY(check_gradient(m, step, &step->tensors[i], index));
		r->progress.total_nbytes += tsr_tensor_nbytes(&step->tensors[i]);
	}
	s->nmissing = step->ntensors; /* until all parameters are known: those with a gradient */
	return tsr_progress_add(&r->progress, 0, r->err);
}

/* --- Their states ----------------------------------------------------------------------------- */

TSR_COMPARE(by_weight, struct tsr_replay_param,
	    TSR_ORDER(a->tensor[TSR_SLOT_WEIGHT], b->tensor[TSR_SLOT_WEIGHT]))

/* Step the parameters that some step has a gradient for, in the checkpoint's order. */
static enum tsr_status keep_seen(struct matching *m)
{
	struct tsr_replaying *r = m->r;
	struct tsr_replay *result = r->result;

	if (!tsr_replay_is_listed(r->recording) && m->nparams)
		qsort(m->params, m->nparams, sizeof(*m->params), by_weight);
	r->listed = m->params;
	r->nlisted = m->nparams;
	m->params = NULL;
	TSR_TRY(list_missing(r, r->listed, r->nlisted));
	for (size_t i = 0; i < result->nsteps; i++)
		result->steps[i].nmissing = r->nlisted - result->steps[i].nmissing;
	r->params = result->state = calloc(r->nlisted + 1, sizeof(*r->params));
	if (!r->params)
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < r->nlisted; i++) {
		m->taken[r->listed[i].tensor[TSR_SLOT_WEIGHT]] = r->listed[i].nseen > 0;
		if (r->listed[i].nseen)
			r->params[r->nparams++] = r->listed[i];
	}
	result->nparams = r->nparams;
	if (r->nparams)
		qsort(r->params, r->nparams, sizeof(*r->params), by_weight);
	TSR_TRY(tsr_parameters_keep(&r->parameters, m->taken, r->err));
	return index_recorded(r, r->params, r->nparams);
}

/* Give the parameters what the checkpoint has of them. */
static enum tsr_status add_states(struct tsr_replaying *r)
{
	TSR_TRY(tsr_parameters_place(&r->parameters, r->err));
	for (size_t i = 0; i < r->nparams; i++) {
		const struct tsr_parameter *own = &r->parameters.list[i];

		if (own->master != SIZE_MAX)
			return tsr_fail(
				r->err, TSR_E_UNSUPPORTED,
				"%s: tensor %.200s: is a second copy of its weight, which "
				"would be left as it is; replay steps weights that are kept "
				"once",
				r->c->path, r->c->tensors[own->master].name);
		memcpy(r->params[i].tensor, own->tensor, sizeof(own->tensor));
		r->params[i].counter = own->counter;
		r->params[i].scalar = own->count;
	}
	return tsr_replay_check_states(r);
}

/* --- All of it -------------------------------------------------------------------------------- */

/* Without a list in the manifest, every gradient is a parameter. */
static enum tsr_status look_at_steps(struct matching *m)
{
	struct tsr_replaying *r = m->r;

	TSR_TRY(take_names(m, false));
	TSR_TRY(tsr_parameters_update(&r->parameters, r->err));
	TSR_TRY(take_names(m, true));
	TSR_TRY(index_recorded(r, m->params, m->nparams));
	for (size_t i = 0; i < r->result->nsteps; i++)
		TSR_TRY(look_at_step(m, i));
	return TSR_OK;
}

/* What @first found in the headers of the same steps. */
static enum tsr_status take_listed(struct matching *m, const struct tsr_replaying *first)
{
	struct tsr_replaying *r = m->r;

	for (size_t i = 0; i < first->nlisted; i++)
		TSR_TRY(tsr_parameters_know(&r->parameters, first->listed[i].recorded, r->err));
	TSR_TRY(tsr_parameters_update(&r->parameters, r->err));
	for (size_t i = 0; i < first->nlisted; i++) {
		const struct tsr_replay_param *p = &first->listed[i];

		TSR_TRY(add_param(m, p->recorded, p->group, r->recording->path, 0));
		m->params[i].nseen = p->nseen;
		m->params[i].first_missing = p->first_missing;
	}
	for (size_t i = 0; i < r->result->nsteps; i++)
		r->result->steps[i].nmissing = first->nlisted - first->result->steps[i].nmissing;
	r->progress.total_nbytes = first->progress.total_nbytes;
	return TSR_OK;
}

enum tsr_status tsr_replay_find_params(struct tsr_replaying *r, const struct tsr_replaying *first)
{
	struct matching m = { .r = r };
	enum tsr_status status = tsr_parameters_find(r->c, r->options->rules, r->options->nrules,
						     &r->parameters, r->err);

	TSR_THEN(status,
		 TSR_TAKE(&m.taken, r->c->ntensors + 1, r->parameters.arena, r->err, r->c->path));
	TSR_THEN(status, first == r ? look_at_steps(&m) : take_listed(&m, first));
	TSR_THEN(status, keep_seen(&m));
	TSR_THEN(status, add_states(r));
	free(m.params);
	return status;
}
