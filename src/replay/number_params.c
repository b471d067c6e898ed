/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of parameters in the state_dict() of an optimizer that has no state of them. */
#include "replay/new_states.h"

#include "base/fail.h"
#include "ckpt/build.h"

/* --- Names ------------------------------------------------------------------------------------ */

/* By its name in the checkpoint, or else in the recording; SIZE_MAX: it is not stepped. */
static size_t param_named(const struct tsr_replaying *r, const char *name)
{
	const struct tsr_tensor *weight = tsr_checkpoint_find(r->c, name);
	const size_t own = weight ? r->parameters.of_weight[weight - r->c->tensors] : SIZE_MAX;

	return own != SIZE_MAX ? own : tsr_replay_param_of(r, name);
}

/* The parameter whose tensors are in the state of an id. */
static size_t param_holding(const struct tsr_replaying *r, const struct tsr_optim_id *id)
{
	const struct tsr_value *state = tsr_value_mapping(id->state);

	for (size_t i = 1; state && i < state->list.n; i += 2) {
		const struct tsr_value *v = state->list.items[i];

		if (v->type == TSR_VALUE_TENSOR &&
		    r->parameters.of_state[v->tensor.array] != SIZE_MAX)
			return r->parameters.of_state[v->tensor.array];
	}
	return SIZE_MAX;
}

/* Read the optimizer, if that was not done. */
static enum tsr_status read_optimizer(struct tsr_replay_adding *a)
{
	struct tsr_replaying *r = a->r;

	if (a->optim.groups)
		return TSR_OK;
	TSR_TRY(tsr_optim_read(r->c, r->parameters.optimizer, "optimizer", "optimizer.", &a->optim,
			       r->err));
	for (size_t i = 0; i < a->optim.nids; i++) {
		struct tsr_optim_id *id = &a->optim.ids[i];
		const size_t param = id->name ? SIZE_MAX : param_holding(r, id);

		if (param != SIZE_MAX)
			id->name = r->params[param].name;
	}
	return TSR_OK;
}

/* Whether the optimizer has as many groups as the recording, each with as many parameters. */
static bool has_same_groups(const struct tsr_replay_adding *a)
{
	const struct tsr_replaying *r = a->r;

	if (a->optim.groups->list.n != r->result->ngroups || a->optim.nids != r->nlisted)
		return false;
	for (size_t i = 0; i < a->optim.nids; i++) {
		if (a->optim.ids[i].group != r->listed[i].group)
			return false;
	}
	return true;
}

/* Names for all ids, from the most reliable source. */
static enum tsr_status name_ids(struct tsr_replay_adding *a)
{
	struct tsr_replaying *r = a->r;
	struct tsr_optim *o = &a->optim;
	const struct tsr_open_options *open = r->options->open;
	TSR_OWNED(free) struct tsr_param *model = NULL;
	size_t unnamed = 0;

	for (size_t i = 0; i < o->nids; i++)
		unnamed += !o->ids[i].name;
	if (!unnamed)
		return TSR_OK;
	if (open && open->params && open->nparams == o->nids) {
		for (size_t i = 0; i < o->nids; i++)
			o->ids[i].name = open->params[i];
		return TSR_OK;
	}
	if (tsr_replay_is_listed(r->recording) && has_same_groups(a)) {
		for (size_t i = 0; i < o->nids; i++)
			o->ids[i].name = r->listed[i].name;
		return TSR_OK;
	}
	TSR_TRY(TSR_NEW(&model, r->nparams + 1, r->err, r->c->path));
	for (size_t i = 0; i < r->nparams; i++)
		model[i] = (struct tsr_param){
			r->params[i].name,
			r->c->tensors[r->params[i].tensor[TSR_SLOT_WEIGHT]].plane[0]
		};
	return tsr_optim_join(r->c, o, model, r->nparams, true, NULL, 0, r->err);
}

static enum tsr_status unsettled(const struct tsr_replaying *r, size_t param)
{
	return tsr_fail_hint(r->err, TSR_E_UNSUPPORTED, TSR_HINT_PARAMS,
			     "%s: optimizer: found no number for the new state of parameter "
			     "%.200s: neither names nor the groups of the recording settle it",
			     r->c->path, r->params[param].name);
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

/* Give a parameter the mapping of an id, which may be new. */
static enum tsr_status add_entry(struct tsr_replaying *r, struct tsr_value *state,
				 const struct tsr_optim_id *id, size_t param)
{
	struct tsr_arena *arena = r->c->arena;
	struct tsr_value *own = id->state ? mapping_of(arena, id->state)
					  : tsr_value_new(arena, TSR_VALUE_DICT);

	r->parameters.list[param].state = own;
	if (id->state)
		return own ? TSR_OK : unsettled(r, param);
	if (tsr_value_put(arena, state, (struct tsr_value *)id->id, own))
		return TSR_OK;
	return tsr_build_nomem(r->c, r->err);
}

/* Whether ids are names, and groups have nothing else per parameter. */
static bool goes_by_name(const struct tsr_optim *o, const struct tsr_value *group)
{
	for (size_t i = 0; i < o->nids; i++) {
		if (o->ids[i].id->type != TSR_VALUE_STRING)
			return false;
	}
	return o->nids && !tsr_value_at(group, "param_names");
}

/* Where ids are names, add a parameter that no group lists yet to its group. */
static enum tsr_status add_name(struct tsr_replay_adding *a, struct tsr_value *state, size_t param)
{
	struct tsr_replaying *r = a->r;
	const struct tsr_replay_param *p = &r->params[param];
	const struct tsr_value *group;
	struct tsr_optim_id id = { .group = p->group };
	struct tsr_value *name;

	if (a->optim.groups->list.n != r->result->ngroups)
		return unsettled(r, param);
	group = a->optim.groups->list.items[p->group];
	if (!goes_by_name(&a->optim, group))
		return unsettled(r, param);
	id.id = name = tsr_value_string(r->c->arena, p->name);
	if (tsr_value_add(r->c->arena, tsr_value_at(group, "params"), name))
		return add_entry(r, state, &id, param);
	return tsr_build_nomem(r->c, r->err);
}

enum tsr_status tsr_replay_number_states(struct tsr_replay_adding *a)
{
	struct tsr_replaying *r = a->r;
	const struct tsr_optim *o = &a->optim;
	struct tsr_value *state;

	TSR_TRY(read_optimizer(a));
	TSR_TRY(name_ids(a));
	state = mapping_of(r->c->arena, tsr_value_at(r->parameters.optimizer, "state"));
	if (!state)
		return tsr_build_nomem(r->c, r->err);
	for (size_t i = 0; i < o->nids; i++) {
		const size_t k = o->ids[i].name ? param_named(r, o->ids[i].name) : SIZE_MAX;
		const size_t held = param_holding(r, &o->ids[i]);

		if (k == SIZE_MAX)
			continue;
		/* An existing state says which parameter has this number. */
		if (held != SIZE_MAX && held != k)
			return unsettled(r, k);
		if (!r->parameters.list[k].state)
			TSR_TRY(add_entry(r, state, &o->ids[i], k));
	}
	for (size_t k = 0; k < r->nparams; k++) {
		if (!r->parameters.list[k].state)
			TSR_TRY(add_name(a, state, k));
	}
	return TSR_OK;
}

/* --- Learning rates --------------------------------------------------------------------------- */

double tsr_replay_last_lr(const struct tsr_replaying *r, size_t group)
{
	return r->result->steps[r->result->nsteps - 1].lr[group];
}

/* Whether the groups are those of the recording: one is; of several, every parameter must agree. */
static bool is_recorded_groups(const struct tsr_replay_adding *a)
{
	const struct tsr_replaying *r = a->r;
	const struct tsr_optim *o = &a->optim;

	if (o->groups->list.n != r->result->ngroups)
		return false;
	if (r->result->ngroups == 1)
		return true;
	for (size_t i = 0; i < o->nids; i++) {
		const size_t k = o->ids[i].name ? param_named(r, o->ids[i].name) : SIZE_MAX;

		if (k != SIZE_MAX && r->params[k].group != o->ids[i].group)
			return false;
	}
	return has_same_groups(a);
}

static enum tsr_status write_group_lr(struct tsr_replay_adding *a, size_t group)
{
	struct tsr_arena *arena = a->r->c->arena;
	const struct tsr_value *dict = tsr_value_mapping(a->optim.groups->list.items[group]);
	const struct tsr_value *lr = tsr_value_at(dict, "lr");

	if (!lr || (lr->type != TSR_VALUE_FLOAT && lr->type != TSR_VALUE_INT) ||
	    tsr_value_set_at(arena, (struct tsr_value *)dict, "lr",
			     tsr_value_float(arena, tsr_replay_last_lr(a->r, group))))
		return TSR_OK;
	return tsr_build_nomem(a->r->c, a->r->err);
}

enum tsr_status tsr_replay_write_lr(struct tsr_replay_adding *a)
{
	if (a->r->parameters.noptimizers != 1)
		return TSR_OK;
	TSR_TRY(read_optimizer(a));
	if (!is_recorded_groups(a))
		return TSR_OK;
	for (size_t g = 0; g < a->r->result->ngroups; g++)
		TSR_TRY(write_group_lr(a, g));
	return TSR_OK;
}
