/* SPDX-License-Identifier: Apache-2.0 */
/* Matching the parameters of a recording with the weights and states of the checkpoint. */
#include "replay/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "io/file.h"
#include "text/named.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/read.h"
#include "names/name_rules.h"
#include "names/roles.h"
#include "recording/recording_data.h"
#include "text/shape.h"

/* Weights of the checkpoint by their names without wrappers, which the list owns. */
struct weights {
	struct tsr_named *list;
	size_t n;
};

struct matching {
	struct tsr_replaying *r;
	struct tsr_tensor_role *roles;
	struct weights weights;
	struct weights scalars; /* tensors without dimensions that may be parameters */
	bool *is_param; /* per tensor: whether it is one of these and the recording has it */
	struct tsr_replay_param *params; /* of the recording */
	size_t nparams, room;
	bool *taken; /* per tensor: whether it is some parameter */
};

/* --- Finding a weight by name ----------------------------------------------------------------- */

typedef bool test_fn(const struct matching *m, size_t tensor);

static bool is_weight(const struct matching *m, size_t tensor)
{
	return m->r->c->tensors[tensor].kind == TSR_KIND_WEIGHT &&
	       m->roles[tensor].role == TSR_ROLE_NONE;
}

static bool is_scalar(const struct matching *m, size_t tensor)
{
	const struct tsr_tensor *t = &m->r->c->tensors[tensor];

	return !t->rank && t->kind == TSR_KIND_OTHER && tsr_tensor_has_f32(t) &&
	       m->roles[tensor].role == TSR_ROLE_NONE;
}

static void free_weights(struct weights *w)
{
	for (size_t i = 0; i < w->n; i++)
		free((char *)w->list[i].name);
	free(w->list);
	*w = (struct weights){ 0 };
}

/* The tensors for which @test holds. */
static enum tsr_status list_weights(const struct matching *m, test_fn *test, struct weights *ret)
{
	const struct tsr_checkpoint *c = m->r->c;
	size_t n = 0;

	for (size_t i = 0; i < c->ntensors; i++)
		n += test(m, i);
	ret->list = calloc(n + 1, sizeof(*ret->list));
	if (!ret->list)
		return tsr_fail_nomem(m->r->err, c->path);
	for (size_t i = 0; i < c->ntensors; i++) {
		if (!test(m, i))
			continue;
		ret->list[ret->n].index = i;
		ret->list[ret->n].name = tsr_names_canonical(c->tensors[i].name);
		if (!ret->list[ret->n++].name)
			return tsr_fail_nomem(m->r->err, c->path);
	}
	tsr_named_sort(ret->list, ret->n);
	return TSR_OK;
}

/* Find a weight by its name, or else without wrappers; SIZE_MAX if there is none, or several. */
static enum tsr_status find_weight(const struct matching *m, const struct weights *w, test_fn *test,
				   const char *name, size_t *ret)
{
	const struct tsr_checkpoint *c = m->r->c;
	const struct tsr_tensor *exact = tsr_checkpoint_find(c, name);
	const struct tsr_named *found;
	char *canonical;

	*ret = SIZE_MAX;
	if (exact && test(m, (size_t)(exact - c->tensors))) {
		*ret = (size_t)(exact - c->tensors);
		return TSR_OK;
	}
	canonical = tsr_names_canonical(name);
	if (!canonical)
		return tsr_fail_nomem(m->r->err, c->path);
	found = tsr_named_find(w->list, w->n, canonical);
	free(canonical);
	if (found && (found + 1 == w->list + w->n || strcmp(found[1].name, found->name) != 0))
		*ret = found->index;
	return TSR_OK;
}

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
	TSR_TRY(find_weight(m, &m->weights, is_weight, name, &tensor));
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
	if (m->nparams == m->room) {
		m->room = m->room ? 2 * m->room : 64;
		p = realloc(m->params, m->room * sizeof(*p));
		if (!p)
			return tsr_fail_nomem(r->err, r->c->path);
		m->params = p;
	}
	m->taken[tensor] = true;
	p = &m->params[m->nparams++];
	*p = (struct tsr_replay_param){ .name = r->c->tensors[tensor].name,
					.recorded = name,
					.group = group,
					.numel = r->c->tensors[tensor].numel,
					.tensor = { tensor, SIZE_MAX, SIZE_MAX },
					.counter = SIZE_MAX };
	return TSR_OK;
}

/* Add the parameters that the manifest lists; without a list, every gradient is one. */
static enum tsr_status add_listed(struct matching *m)
{
	const struct tsr_recording *recording = m->r->recording;

	for (size_t g = 0; g < recording->ngroups; g++) {
		for (size_t i = 0; recording->groups[g].params && i < recording->groups[g].nparams;
		     i++)
			TSR_TRY(add_param(m, recording->groups[g].params[i], g, recording->path,
					  0));
	}
	return TSR_OK;
}

/* Index the first @n of what will be the replay's parameters by their recorded names. */
static enum tsr_status index_recorded(struct tsr_replaying *r,
				      const struct tsr_replay_param *params, size_t n)
{
	free(r->by_recorded);
	r->by_recorded = calloc(n + 1, sizeof(*r->by_recorded));
	if (!r->by_recorded)
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < n; i++)
		r->by_recorded[i] = (struct tsr_named){ params[i].recorded, i };
	tsr_named_sort(r->by_recorded, n);
	return TSR_OK;
}

/* --- Gradients that are missing --------------------------------------------------------------- */

/* Note that a step has a gradient for the parameter; steps come in their order. */
static void saw_gradient(struct tsr_replay_param *p, size_t step)
{
	p->first_missing += p->first_missing == step;
	p->nseen++;
}

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
	char *path = tsr_path_join(r->recording->path, step->files[0]);
	enum tsr_status status;

	if (!path)
		return tsr_fail_nomem(r->err, r->recording->path);
	status = tsr_fail_hint(r->err, TSR_E_FORMAT, TSR_HINT_SKIP_MISSING,
			       "%s: step %" PRIu64
			       ": tensor %.200s: found no gradient of this parameter, expected one",
			       step->nfiles == 1 ? path : r->recording->path, step->step,
			       p->recorded);
	free(path);
	return status;
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
	result->missing = calloc(nmissing, sizeof(*result->missing));
	if (!result->missing)
		return tsr_fail_nomem(r->err, r->c->path);
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
	char found[200], expected[200];
	struct tsr_replay_param *p;

	if (!named)
		return tsr_fail(r->err, TSR_E_FORMAT,
				"%s: step %" PRIu64 ": tensor %.200s: is an extra gradient: no "
				"group of the recording has this parameter",
				step->path, number, grad->name);
	p = &m->params[named->index];
	weight = &r->c->tensors[p->tensor[TSR_PART_WEIGHT]];
	saw_gradient(p, index);
	if (tsr_tensor_same_shape(grad, weight))
		return TSR_OK;
	tsr_shape_text(found, sizeof(found), grad->rank, grad->shape);
	tsr_shape_text(expected, sizeof(expected), weight->rank, weight->shape);
	return tsr_fail(r->err, TSR_E_FORMAT,
			"%s: step %" PRIu64
			": tensor %.200s: found shape %s, expected %s as %.200s has",
			step->path, number, grad->name, found, expected, weight->name);
}

/* Add a parameter for every gradient with a new name. */
static enum tsr_status add_gradients(struct matching *m, const struct tsr_checkpoint *step,
				     uint64_t number)
{
	struct tsr_replaying *r = m->r;
	const size_t had = m->nparams;

	for (size_t i = 0; i < step->ntensors; i++) {
		const char *name = step->tensors[i].name;

		/* After the first step, names are rarely new. */
		if (tsr_named_find(r->by_recorded, had, name))
			continue;
		name = tsr_arena_copy(r->c->arena, name, strlen(name));
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
	struct tsr_checkpoint *step = NULL;
	enum tsr_status status;

	TSR_TRY(tsr_recording_open_step(r->recording, r->first + index, &step, r->err));
	status = tsr_replay_is_listed(r->recording) ? TSR_OK : add_gradients(m, step, s->step);
	for (size_t i = 0; i < step->ntensors && status == TSR_OK; i++) {
		status = check_gradient(m, step, &step->tensors[i], index);
		r->progress.total_nbytes += tsr_tensor_nbytes(&step->tensors[i]);
	}
	s->nmissing = step->ntensors; /* until all parameters are known: those with a gradient */
	tsr_checkpoint_close(step);
	return status == TSR_OK ? tsr_progress_add(&r->progress, 0, r->err) : status;
}

/* --- Their states ----------------------------------------------------------------------------- */

static int by_weight(const void *va, const void *vb)
{
	const struct tsr_replay_param *a = va, *b = vb;

	return (a->tensor[TSR_PART_WEIGHT] > b->tensor[TSR_PART_WEIGHT]) -
	       (a->tensor[TSR_PART_WEIGHT] < b->tensor[TSR_PART_WEIGHT]);
}

/* List all parameters in their order before some are dropped. */
static enum tsr_status list_recorded(struct matching *m)
{
	struct tsr_replaying *r = m->r;

	r->listed = calloc(m->nparams + 1, sizeof(*r->listed));
	if (!r->listed)
		return tsr_fail_nomem(r->err, r->c->path);
	if (!tsr_replay_is_listed(r->recording) && m->nparams)
		qsort(m->params, m->nparams, sizeof(*m->params), by_weight);
	for (size_t i = 0; i < m->nparams; i++)
		r->listed[i] = (struct tsr_replay_listed){ m->params[i].name,
							   m->params[i].tensor[TSR_PART_WEIGHT],
							   m->params[i].group, SIZE_MAX };
	return TSR_OK;
}

/* Find the parameter that is stepped for everything that is listed. */
static enum tsr_status index_listed(struct tsr_replaying *r)
{
	size_t *param_of = tsr_replay_index_weights(r);

	if (!param_of)
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < r->nrecorded; i++)
		r->listed[i].param = param_of[r->listed[i].tensor];
	free(param_of);
	return TSR_OK;
}

/* Keep the parameters that some step has a gradient for, in the checkpoint's order. */
static enum tsr_status keep_seen(struct matching *m)
{
	struct tsr_replaying *r = m->r;
	size_t n = 0;

	TSR_TRY(list_recorded(m));
	TSR_TRY(list_missing(r, m->params, m->nparams));
	r->nrecorded = m->nparams;
	for (size_t i = 0; i < r->result->nsteps; i++)
		r->result->steps[i].nmissing = m->nparams - r->result->steps[i].nmissing;
	for (size_t i = 0; i < m->nparams; i++) {
		if (m->params[i].nseen)
			m->params[n++] = m->params[i];
	}
	m->nparams = n;
	if (n)
		qsort(m->params, n, sizeof(*m->params), by_weight);
	r->params = r->result->state = m->params;
	r->nparams = r->result->nparams = n;
	m->params = NULL;
	TSR_TRY(index_listed(r));
	return index_recorded(r, r->params, n);
}

static enum tsr_status refuse(struct tsr_replaying *r, size_t tensor, const char *what)
{
	return tsr_fail(r->err, TSR_E_UNSUPPORTED, "%s: tensor %.200s: %s", r->c->path,
			r->c->tensors[tensor].name, what);
}

/* Give a tensor to the parameter whose state it is. */
static enum tsr_status add_state(struct matching *m, struct tsr_replay_param *p, size_t tensor)
{
	switch (m->roles[tensor].role) {
	case TSR_ROLE_MOMENTUM:
		p->tensor[TSR_PART_MOMENTUM] = tensor;
		return TSR_OK;
	case TSR_ROLE_VARIANCE:
		p->tensor[TSR_PART_VARIANCE] = tensor;
		return TSR_OK;
	case TSR_ROLE_STEP:
		p->counter = tensor;
		return TSR_OK;
	case TSR_ROLE_MAX_VARIANCE:
		return tsr_replay_is_adam(m->r) ? refuse(m->r, tensor, "AMSGrad is not replayed")
						: TSR_OK;
	case TSR_ROLE_MASTER:
		return refuse(m->r, tensor,
			      "is a second copy of its weight, which would be left as it is; "
			      "replay steps weights that are kept once");
	default:
		return TSR_OK;
	}
}

static enum tsr_status add_states(struct matching *m)
{
	struct tsr_replaying *r = m->r;
	size_t *param_of = tsr_replay_index_weights(r);
	enum tsr_status status = TSR_OK;

	if (!param_of)
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < r->c->ntensors && status == TSR_OK; i++) {
		const size_t weight = m->roles[i].weight;

		if (weight != SIZE_MAX && param_of[weight] != SIZE_MAX)
			status = add_state(m, &r->params[param_of[weight]], i);
		else if (weight == SIZE_MAX && (m->roles[i].role == TSR_ROLE_MOMENTUM ||
						m->roles[i].role == TSR_ROLE_VARIANCE))
			r->stray_state = true;
	}
	free(param_of);
	return status;
}

/* --- Parameters without dimensions ------------------------------------------------------------ */

/*
 * A tensor without dimensions is a weight only if something says so: here a parameter of the
 * recording that does not match another weight.
 */
static enum tsr_status look_for_scalar(struct matching *m, const char *name, bool *any)
{
	size_t weight, scalar;

	TSR_TRY(find_weight(m, &m->weights, is_weight, name, &weight));
	if (weight != SIZE_MAX)
		return TSR_OK;
	TSR_TRY(find_weight(m, &m->scalars, is_scalar, name, &scalar));
	if (scalar == SIZE_MAX)
		return TSR_OK;
	m->is_param[scalar] = true;
	*any = true;
	return TSR_OK;
}

static enum tsr_status look_for_scalars_at(struct matching *m, size_t index, bool *any)
{
	struct tsr_checkpoint *step = NULL;
	enum tsr_status status = TSR_OK;

	TSR_TRY(tsr_recording_open_step(m->r->recording, m->r->first + index, &step, m->r->err));
	for (size_t i = 0; i < step->ntensors && status == TSR_OK; i++) {
		if (!step->tensors[i].rank)
			status = look_for_scalar(m, step->tensors[i].name, any);
	}
	tsr_checkpoint_close(step);
	return status;
}

static enum tsr_status look_for_scalars(struct matching *m, bool *any)
{
	const struct tsr_recording *recording = m->r->recording;

	for (size_t g = 0; g < recording->ngroups; g++) {
		const struct tsr_recording_group *group = &recording->groups[g];

		for (size_t i = 0; group->params && i < group->nparams; i++)
			TSR_TRY(look_for_scalar(m, group->params[i], any));
	}
	for (size_t i = 0; i < m->r->result->nsteps && !tsr_replay_is_listed(recording); i++)
		TSR_TRY(look_for_scalars_at(m, i, any));
	return TSR_OK;
}

static enum tsr_status find_roles(struct matching *m)
{
	struct tsr_replaying *r = m->r;

	TSR_TRY(tsr_names_roles(r->c, r->options->rules, r->options->nrules, m->is_param, m->roles,
				r->err));
	TSR_TRY(tsr_name_rules_note(r->c, r->options->rules, r->options->nrules, r->err));
	free_weights(&m->weights);
	return list_weights(m, is_weight, &m->weights);
}

/* --- All of it -------------------------------------------------------------------------------- */

static enum tsr_status match(struct matching *m)
{
	struct tsr_replaying *r = m->r;
	bool any = false;

	TSR_TRY(find_roles(m));
	TSR_TRY(list_weights(m, is_scalar, &m->scalars));
	if (m->scalars.n)
		TSR_TRY(look_for_scalars(m, &any));
	if (any)
		TSR_TRY(find_roles(m));
	TSR_TRY(add_listed(m));
	TSR_TRY(index_recorded(r, m->params, m->nparams));
	for (size_t i = 0; i < r->result->nsteps; i++)
		TSR_TRY(look_at_step(m, i));
	TSR_TRY(keep_seen(m));
	return add_states(m);
}

enum tsr_status tsr_replay_find_params(struct tsr_replaying *r)
{
	struct matching m = { .r = r };
	enum tsr_status status;

	m.roles = calloc(r->c->ntensors + 1, sizeof(*m.roles));
	m.taken = calloc(r->c->ntensors + 1, sizeof(*m.taken));
	m.is_param = calloc(r->c->ntensors + 1, sizeof(*m.is_param));
	status = m.roles && m.taken && m.is_param ? match(&m) : tsr_fail_nomem(r->err, r->c->path);
	free_weights(&m.weights);
	free_weights(&m.scalars);
	free(m.is_param);
	free(m.params);
	free(m.roles);
	free(m.taken);
	return status;
}
