/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of parameters in the state_dict() of an optimizer that has no state of them. */
#include "replay/new_states.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "text/named.h"
#include "ckpt/build.h"
#include "names/optimizer_ids.h"

struct numbering {
	struct tsr_replay_adding *a;
	struct tsr_replaying *r;
	struct tsr_optim o;
	size_t *param; /* per id: the parameter that it is, or SIZE_MAX */
	struct tsr_named *by_name; /* the parameters */
};

/* --- Names ------------------------------------------------------------------------------------ */

/* By its name in the checkpoint, or else in the recording; SIZE_MAX: it is not stepped. */
static size_t param_named(const struct numbering *n, const char *name)
{
	const struct tsr_named *named = tsr_named_find(n->by_name, n->r->nparams, name);

	return named ? named->index : tsr_replay_param_of(n->r, name);
}

/* The parameter whose tensors are in the state of an id. */
static size_t param_holding(const struct numbering *n, const struct tsr_optim_id *id)
{
	const struct tsr_value *state = tsr_value_mapping(id->state);

	for (size_t i = 1; state && i < state->list.n; i += 2) {
		const struct tsr_value *v = state->list.items[i];

		if (v->type == TSR_VALUE_TENSOR && n->a->param_of[v->tensor.array] != SIZE_MAX)
			return n->a->param_of[v->tensor.array];
	}
	return SIZE_MAX;
}

static enum tsr_status begin(struct numbering *n)
{
	struct tsr_replaying *r = n->r;

	TSR_TRY(tsr_optim_read(r->c, n->a->optimizer, "optimizer", "optimizer.", &n->o, r->err));
	n->param = calloc(n->o.nids + 1, sizeof(*n->param));
	n->by_name = calloc(r->nparams + 1, sizeof(*n->by_name));
	if (!n->param || !n->by_name)
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < r->nparams; i++)
		n->by_name[i] = (struct tsr_named){ r->params[i].name, i };
	tsr_named_sort(n->by_name, r->nparams);
	for (size_t i = 0; i < n->o.nids; i++) {
		n->param[i] = param_holding(n, &n->o.ids[i]);
		if (!n->o.ids[i].name && n->param[i] != SIZE_MAX)
			n->o.ids[i].name = r->params[n->param[i]].name;
	}
	return TSR_OK;
}

static void end(struct numbering *n)
{
	free(n->param);
	free(n->by_name);
}

/* Whether the optimizer has as many groups as the recording, each with as many parameters. */
static bool has_same_groups(const struct numbering *n)
{
	const struct tsr_replaying *r = n->r;

	if (n->o.groups->list.n != r->result->ngroups || n->o.nids != r->nrecorded)
		return false;
	for (size_t i = 0; i < n->o.nids; i++) {
		if (n->o.ids[i].group != r->listed[i].group)
			return false;
	}
	return true;
}

/* Names for all ids, from the most reliable source. */
static enum tsr_status name_ids(struct numbering *n)
{
	struct tsr_replaying *r = n->r;
	const struct tsr_open_options *open = r->options->open;
	struct tsr_param *model;
	size_t unnamed = 0;
	enum tsr_status status;

	for (size_t i = 0; i < n->o.nids; i++)
		unnamed += !n->o.ids[i].name;
	if (!unnamed)
		return TSR_OK;
	if (open && open->params && open->nparams == n->o.nids) {
		for (size_t i = 0; i < n->o.nids; i++)
			n->o.ids[i].name = open->params[i];
		return TSR_OK;
	}
	if (tsr_replay_is_listed(r->recording) && has_same_groups(n)) {
		for (size_t i = 0; i < n->o.nids; i++)
			n->o.ids[i].name = r->listed[i].name;
		return TSR_OK;
	}
	model = calloc(r->nparams + 1, sizeof(*model));
	if (!model)
		return tsr_fail_nomem(r->err, r->c->path);
	for (size_t i = 0; i < r->nparams; i++)
		model[i] = (struct tsr_param){
			r->params[i].name,
			r->c->tensors[r->params[i].tensor[TSR_PART_WEIGHT]].plane[0]
		};
	status = tsr_optim_join(r->c, &n->o, model, r->nparams, true, NULL, 0, r->err);
	free(model);
	return status;
}

static enum tsr_status unsettled(const struct numbering *n, size_t param)
{
	return tsr_fail_hint(n->r->err, TSR_E_UNSUPPORTED, TSR_HINT_PARAMS,
			     "%s: optimizer: found no number for the new state of parameter "
			     "%.200s: neither names nor the groups of the recording settle it",
			     n->r->c->path, n->r->params[param].name);
}

/* --- New states ------------------------------------------------------------------------------- */

/* The mapping in a value, which may be an empty OrderedDict(); NULL if it is something else. */
static struct tsr_value *mapping_of(struct tsr_arena *arena, struct tsr_value *v)
{
	if (v && v->type == TSR_VALUE_CALL && tsr_value_mapping(v) && !v->call.items &&
	    !tsr_value_mapping(v)->list.n)
		v->call.items = tsr_value_new(arena, TSR_VALUE_DICT);
	return (struct tsr_value *)tsr_value_mapping(v);
}

static enum tsr_status add_entry(struct numbering *n, struct tsr_value *state, size_t id,
				 size_t param)
{
	struct tsr_arena *arena = n->r->c->arena;
	struct tsr_value *dict;

	if (n->o.ids[id].state) {
		n->a->dicts[param] = mapping_of(arena, n->o.ids[id].state);
		return n->a->dicts[param] ? TSR_OK : unsettled(n, param);
	}
	dict = tsr_value_new(arena, TSR_VALUE_DICT);
	n->a->dicts[param] = dict;
	if (tsr_value_put(arena, state, (struct tsr_value *)n->o.ids[id].id, dict))
		return TSR_OK;
	return tsr_build_nomem(n->r->c, n->r->err);
}

/* Whether ids are names, and groups have nothing else per parameter. */
static bool goes_by_name(const struct numbering *n, const struct tsr_value *group)
{
	for (size_t i = 0; i < n->o.nids; i++) {
		if (n->o.ids[i].id->type != TSR_VALUE_STRING)
			return false;
	}
	return n->o.nids && n->o.groups->list.n == n->r->result->ngroups &&
	       !tsr_value_at(group, "param_names");
}

/* Where ids are names, add a parameter that no group lists yet to its group. */
static enum tsr_status add_name(struct numbering *n, struct tsr_value *state, size_t param)
{
	const struct tsr_replay_param *p = &n->r->params[param];
	struct tsr_arena *arena = n->r->c->arena;
	const struct tsr_value *group;
	struct tsr_value *id, *dict;

	if (n->o.groups->list.n != n->r->result->ngroups)
		return unsettled(n, param);
	group = n->o.groups->list.items[p->group];
	if (!goes_by_name(n, group))
		return unsettled(n, param);
	id = tsr_value_string(arena, p->name);
	dict = tsr_value_new(arena, TSR_VALUE_DICT);
	n->a->dicts[param] = dict;
	if (id && tsr_value_add(arena, tsr_value_at(group, "params"), id) &&
	    tsr_value_put(arena, state, id, dict))
		return TSR_OK;
	return tsr_build_nomem(n->r->c, n->r->err);
}

static enum tsr_status number_states(struct numbering *n)
{
	struct tsr_value *state;

	TSR_TRY(begin(n));
	TSR_TRY(name_ids(n));
	state = mapping_of(n->r->c->arena, tsr_value_at(n->a->optimizer, "state"));
	if (!state)
		return tsr_build_nomem(n->r->c, n->r->err);
	for (size_t i = 0; i < n->o.nids; i++) {
		const size_t k = n->o.ids[i].name ? param_named(n, n->o.ids[i].name) : SIZE_MAX;

		if (k == SIZE_MAX)
			continue;
		/* An existing state says which parameter has this number. */
		if (n->param[i] != SIZE_MAX && n->param[i] != k)
			return unsettled(n, k);
		if (!n->a->dicts[k])
			TSR_TRY(add_entry(n, state, i, k));
	}
	for (size_t k = 0; k < n->r->nparams; k++) {
		if (!n->a->dicts[k])
			TSR_TRY(add_name(n, state, k));
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_number_states(struct tsr_replay_adding *a)
{
	struct numbering n = { .a = a, .r = a->r };
	const enum tsr_status status = number_states(&n);

	end(&n);
	return status;
}

/* --- Learning rates --------------------------------------------------------------------------- */

double tsr_replay_last_lr(const struct tsr_replaying *r, size_t group)
{
	return r->result->steps[r->result->nsteps - 1].lr[group];
}

/* Whether the groups are those of the recording: one is; of several, every parameter must agree. */
static bool is_recorded_groups(const struct numbering *n)
{
	const struct tsr_replaying *r = n->r;

	if (n->o.groups->list.n != r->result->ngroups)
		return false;
	if (r->result->ngroups == 1)
		return true;
	for (size_t i = 0; i < n->o.nids; i++) {
		const size_t k = n->o.ids[i].name ? param_named(n, n->o.ids[i].name) : SIZE_MAX;

		if (k != SIZE_MAX && r->params[k].group != n->o.ids[i].group)
			return false;
	}
	return has_same_groups(n);
}

static enum tsr_status write_group_lr(struct numbering *n, size_t group)
{
	const struct tsr_value *dict = tsr_value_mapping(n->o.groups->list.items[group]);
	const double lr = tsr_replay_last_lr(n->r, group);

	for (size_t i = 0; dict && i + 1 < dict->list.n; i += 2) {
		struct tsr_value **v = &dict->list.items[i + 1];

		if (!tsr_value_is_string(dict->list.items[i], "lr") ||
		    ((*v)->type != TSR_VALUE_FLOAT && (*v)->type != TSR_VALUE_INT))
			continue;
		*v = tsr_value_float(n->r->c->arena, lr);
		if (!*v)
			return tsr_build_nomem(n->r->c, n->r->err);
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_write_lr(struct tsr_replay_adding *a)
{
	struct numbering n = { .a = a, .r = a->r };
	enum tsr_status status;
	bool same;

	if (a->noptimizers != 1)
		return TSR_OK;
	status = begin(&n);
	same = status == TSR_OK && is_recorded_groups(&n);
	for (size_t g = 0; same && status == TSR_OK && g < n.r->result->ngroups; g++)
		status = write_group_lr(&n, g);
	end(&n);
	return status;
}
