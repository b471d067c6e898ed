/* SPDX-License-Identifier: Apache-2.0 */
/* New states get a tensor each, and a place in what was saved around the tensors. */
#include "replay/new_states.h"

#include "base/fail.h"
#include "ckpt/build.h"
#include "step/hyperparameters.h"
#include "step/step_math.h"
#include "torch/torch_write.h"

#define STEP "step"

/* --- Tensors ---------------------------------------------------------------------------------- */

/* What PyTorch's optimizers call a slot. */
static const char *field_of(const struct tsr_replaying *r, unsigned slot)
{
	if (slot == TSR_SLOT_VARIANCE || slot == TSR_SLOT_MAX_VARIANCE)
		return slot == TSR_SLOT_VARIANCE ? "exp_avg_sq" : "max_exp_avg_sq";
	return tsr_optimizer_uses(r->result->optimizer, TSR_HYPER_MOMENTUM) ? "momentum_buffer"
									    : "exp_avg";
}

static enum tsr_status add_tensor(struct tsr_replaying *r, const struct tsr_replay_param *p,
				  const char *field, enum tsr_kind kind, size_t *ret)
{
	const struct tsr_tensor *w = &r->c->tensors[p->tensor[TSR_SLOT_WEIGHT]];
	const bool scalar = kind == TSR_KIND_OTHER;
	const char *name = tsr_arena_printf(r->c->arena, "%s.%s", p->name, field);
	struct tsr_array a = { .dtype = TSR_F32, .rank = scalar ? 0 : w->rank, .shape = w->shape };
	struct tsr_tensor t = { .dtype = TSR_F32,
				.rank = a.rank,
				.shape = w->shape,
				.numel = scalar ? 1 : w->numel,
				.kind = kind,
				.weight = scalar ? NULL : p->name,
				.coding = { .group = 1 },
				.nplanes = 1 };

	if (!name)
		return tsr_build_nomem(r->c, r->err);
	if (strlen(name) > TSR_NAME_MAX)
		return tsr_fail(r->err, TSR_E_LIMIT,
				"%s: tensor %.40s...: name is over the limit of %u bytes",
				r->c->path, name, TSR_NAME_MAX);
	a.name = t.name = name;
	TSR_TRY(tsr_build_array(r->c, &a, &t.plane[0], r->err));
	*ret = r->c->ntensors;
	return tsr_build_tensor(r->c, &t, r->err);
}

/* --- Trees ------------------------------------------------------------------------------------ */

/* Whether a prefix ends in the name of its parameter and a dot; *head_ret: the length before it. */
static bool ends_in_name(const struct tsr_parameter *p, const char *name, size_t *head_ret)
{
	const size_t room = p->prefix_nbytes - 1, n = strlen(name);

	if (n > room || memcmp(p->prefix + room - n, name, n) != 0)
		return false;
	*head_ret = room - n;
	return !*head_ret || p->prefix[*head_ret - 1] == '.';
}

/* Learn from one prefix what others look like: with the weight's name, or that without wrappers. */
static enum tsr_status learn_keys(struct tsr_replay_adding *a)
{
	struct tsr_replaying *r = a->r;

	for (size_t i = 0; i < r->nparams && !a->sample; i++) {
		struct tsr_parameter *own = &r->parameters.list[i];
		const char *canonical;

		if (!own->prefix)
			continue;
		canonical = tsr_names_canonical(r->c->arena, r->params[i].name);
		if (!canonical)
			return tsr_build_nomem(r->c, r->err);
		a->canonical = !ends_in_name(own, r->params[i].name, &a->head);
		if (!a->canonical || ends_in_name(own, canonical, &a->head))
			a->sample = own;
	}
	return TSR_OK;
}

/* --- A new optimizer -------------------------------------------------------------------------- */

static bool put_real(struct tsr_replaying *r, struct tsr_value *dict, const char *key, double x)
{
	return tsr_value_put_at(r->c->arena, dict, key, tsr_value_float(r->c->arena, x));
}

static bool put_reals(struct tsr_replaying *r, struct tsr_value *dict, const char *key,
		      const double *x, size_t n)
{
	struct tsr_value *tuple = tsr_value_new(r->c->arena, TSR_VALUE_TUPLE);

	for (size_t i = 0; tuple && i < n; i++) {
		if (!tsr_value_add(r->c->arena, tuple, tsr_value_float(r->c->arena, x[i])))
			return false;
	}
	return tsr_value_put_at(r->c->arena, dict, key, tuple);
}

static bool put_muon(struct tsr_replaying *r, struct tsr_value *dict, const struct tsr_hyper *h)
{
	static const double numbers[] = { TSR_MUON_A, TSR_MUON_B, TSR_MUON_C };
	const bool match = h->value[TSR_HYPER_MATCH_RMS] != 0;
	struct tsr_arena *arena = r->c->arena;

	return put_reals(r, dict, "ns_coefficients", numbers, 3) &&
	       tsr_value_put_at(r->c->arena, dict, "ns_steps",
				tsr_value_int(arena, TSR_MUON_ROUNDS)) &&
	       tsr_value_put_at(r->c->arena, dict, "adjust_lr_fn",
				tsr_value_string(arena, match ? "match_rms_adamw" : "original"));
}

/* Schedulers continue from initial_lr, which decoupled weight decay needs, too. */
static bool has_hyper(const struct tsr_replaying *r, size_t group, enum tsr_hyper_name name)
{
	const bool decouple = r->result->hyper[group].value[TSR_HYPER_DECOUPLE_LR] != 0;

	if (name == TSR_HYPER_DECOUPLE_LR)
		return decouple;
	if (name == TSR_HYPER_MAXIMIZE || name == TSR_HYPER_AMSGRAD)
		return tsr_hyper_is_on(&r->result->hyper[group], name);
	if (name != TSR_HYPER_INITIAL_LR)
		return tsr_optimizer_uses(r->result->optimizer, name);
	return decouple || tsr_hyper_is_set(&r->recording->groups[group].hyper, name) ||
	       tsr_hyper_is_set(&r->options->hyper, name);
}

/* Hyperparameters as PyTorch calls and orders them; lr is that of the last step. */
static bool put_hyper(struct tsr_replaying *r, struct tsr_value *dict, size_t group)
{
	static const enum tsr_hyper_name order[] = {
		TSR_HYPER_WEIGHT_DECAY, TSR_HYPER_INITIAL_LR, TSR_HYPER_DECOUPLE_LR,
		TSR_HYPER_MOMENTUM,	TSR_HYPER_DAMPENING,  TSR_HYPER_NESTEROV,
		TSR_HYPER_BETA1,	TSR_HYPER_EPS,	      TSR_HYPER_MAXIMIZE,
		TSR_HYPER_AMSGRAD,
	};
	const struct tsr_hyper *h = &r->result->hyper[group];
	bool ok = put_real(r, dict, "lr", tsr_replay_last_lr(r, group));

	for (size_t i = 0; ok && i < sizeof(order) / sizeof(*order); i++) {
		const enum tsr_hyper_name name = order[i];
		const double x = h->value[name];

		if (!has_hyper(r, group, name))
			continue;
		if (name == TSR_HYPER_BETA1)
			ok = put_reals(r, dict, "betas", &h->value[TSR_HYPER_BETA1], 2);
		else if (tsr_hyper_is_flag(name))
			ok = tsr_value_put_at(r->c->arena, dict, tsr_hyper_name(name),
					      tsr_value_bool(r->c->arena, x != 0));
		else
			ok = put_real(r, dict, tsr_hyper_name(name), x);
	}
	return ok && (!tsr_optimizer_is_muon(r->result->optimizer) || put_muon(r, dict, h));
}

/*
 * One group of the recording.  Its parameters get the next numbers in the recorded order, which is
 * that of the run's own optimizer; those that are stepped get a state.
 */
static struct tsr_value *make_group(struct tsr_replaying *r, size_t group, struct tsr_value *state,
				    int64_t *next)
{
	struct tsr_arena *arena = r->c->arena;
	struct tsr_value *dict = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *params = tsr_value_new(arena, TSR_VALUE_LIST);
	struct tsr_value *names = tsr_value_new(arena, TSR_VALUE_LIST);
	bool ok = dict && params && names && put_hyper(r, dict, group);

	for (size_t i = 0; ok && i < r->nlisted; i++) {
		const struct tsr_replay_param *p = &r->listed[i];
		const size_t param = tsr_replay_param_of(r, p->recorded);
		struct tsr_value *id, *name, *own;

		if (p->group != group)
			continue;
		id = tsr_value_int(arena, (*next)++);
		name = tsr_value_string(arena, p->name);
		ok = tsr_value_add(arena, params, id) && tsr_value_add(arena, names, name);
		if (!ok || param == SIZE_MAX)
			continue;
		own = tsr_value_new(arena, TSR_VALUE_DICT);
		r->parameters.list[param].state = own;
		ok = tsr_value_put(arena, state, id, own);
	}
	ok = ok && tsr_value_put_at(r->c->arena, dict, "params", params) &&
	     tsr_value_put_at(r->c->arena, dict, "param_names", names);
	return ok ? dict : NULL;
}

/* Whether this is what a script without an optimizer may have saved as one. */
static bool is_nothing(const struct tsr_value *v)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);

	if (!v || v->type == TSR_VALUE_NONE)
		return true;
	return mapping ? !mapping->list.n : tsr_value_is_list(v) && !v->list.n;
}

static enum tsr_status make_optimizer(struct tsr_replaying *r, struct tsr_value *root)
{
	struct tsr_arena *arena = r->c->arena;
	struct tsr_value *optimizer = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *state = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *groups = tsr_value_new(arena, TSR_VALUE_LIST);
	bool ok = optimizer && state && groups;
	int64_t next = 0;

	if (!is_nothing(tsr_value_at(root, "optimizer")))
		return tsr_fail(r->err, TSR_E_UNSUPPORTED,
				"%s: optimizer: found something other than the state_dict() of an "
				"optimizer, expected one, or nothing, for the new states",
				r->c->path);
	for (size_t g = 0; ok && g < r->result->ngroups; g++)
		ok = tsr_value_add(arena, groups, make_group(r, g, state, &next));
	ok = ok && tsr_value_put_at(r->c->arena, optimizer, "state", state) &&
	     tsr_value_put_at(r->c->arena, optimizer, "param_groups", groups) &&
	     tsr_value_set_at(arena, root, "optimizer", optimizer);
	return ok ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

/* --- Where a state goes ----------------------------------------------------------------------- */

/* How many parameters have a mapping for their state. */
static size_t count_mappings(const struct tsr_replaying *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->nparams; i++)
		n += r->parameters.list[i].state != NULL;
	return n;
}

/* Where keys name their parameters, those of new states do as well. */
static enum tsr_status name_keys(struct tsr_replay_adding *a, size_t param)
{
	struct tsr_replaying *r = a->r;
	struct tsr_parameter *own = &r->parameters.list[param];
	const char *name = r->params[param].name, *prefix = NULL;

	if (a->canonical)
		name = tsr_names_canonical(r->c->arena, name);
	if (name)
		prefix = tsr_arena_printf(r->c->arena, "%.*s%s.", (int)a->head, a->sample->prefix,
					  name);
	if (!prefix)
		return tsr_build_nomem(r->c, r->err);
	own->prefix = prefix;
	own->prefix_nbytes = strlen(prefix);
	own->state = a->sample->state;
	return TSR_OK;
}

/* Find or make a mapping for each new state. */
static enum tsr_status make_mappings(struct tsr_replay_adding *a)
{
	struct tsr_replaying *r = a->r;
	struct tsr_value *root = r->c->ntrees == 1 ? r->c->trees[0] : NULL;
	struct tsr_value *mapping = (struct tsr_value *)tsr_value_mapping(root);

	if (count_mappings(r) == r->nparams)
		return TSR_OK;
	TSR_TRY(learn_keys(a));
	for (size_t i = 0; i < r->nparams && a->sample; i++) {
		if (!r->parameters.list[i].state)
			TSR_TRY(name_keys(a, i));
	}
	if (a->sample)
		return TSR_OK;
	if (r->parameters.optimizer)
		return tsr_replay_number_states(a);
	if (!mapping || tsr_torch_is_flat(root) || count_mappings(r))
		return TSR_OK;
	return make_optimizer(r, mapping);
}

static enum tsr_status no_place(const struct tsr_replaying *r, const char *param)
{
	return tsr_fail(r->err, TSR_E_UNSUPPORTED,
			"%s: tensor %.200s: found no mapping to put its new state into", r->c->path,
			param);
}

/* Put a new tensor into the mapping of its parameter, or into a flat one under its own name. */
static enum tsr_status put_tensor(struct tsr_replay_adding *a, size_t param, const char *field,
				  size_t tensor)
{
	struct tsr_replaying *r = a->r;
	const struct tsr_parameter *own = &r->parameters.list[param];
	struct tsr_value *root = r->c->ntrees ? r->c->trees[0] : NULL;
	struct tsr_value *value;
	char *key;
	bool ok;

	if (!root)
		return TSR_OK;
	value = tsr_value_tensor(r->c->arena, r->c->tensors[tensor].plane[0]);
	if (own->state && own->prefix) {
		key = tsr_arena_printf(r->c->arena, "%.*s%s", (int)own->prefix_nbytes, own->prefix,
				       field);
		ok = key && tsr_value_put_at(r->c->arena, own->state, key, value);
	} else if (own->state) {
		ok = tsr_value_set_at(r->c->arena, own->state, field, value);
	} else if (a->flat) {
		ok = tsr_value_put_at(r->c->arena, (struct tsr_value *)tsr_value_mapping(root),
				      r->c->tensors[tensor].name, value);
	} else {
		return no_place(r, r->params[param].name);
	}
	return ok ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

/* --- All of it -------------------------------------------------------------------------------- */

static bool lacks_state(const struct tsr_replay_param *p)
{
	for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++) {
		if (p->coding[slot].codec && p->tensor[slot] == SIZE_MAX)
			return true;
	}
	return false;
}

/* Whether a parameter has seen other than all steps, and nothing counts them. */
static bool lacks_counter(const struct tsr_replaying *r, const struct tsr_replay_param *p)
{
	return tsr_replay_is_adam(r) && p->counter == SIZE_MAX && !p->scalar &&
	       (lacks_state(p) || p->count != r->result->steps[r->result->nsteps - 1].step);
}

static bool lacks_any(const struct tsr_replaying *r)
{
	for (size_t i = 0; i < r->nparams; i++) {
		if (lacks_state(&r->params[i]) || lacks_counter(r, &r->params[i]))
			return true;
	}
	return false;
}

/* Find a mapping for every new state; whether a counter is new is known after the last step. */
static enum tsr_status find_places(struct tsr_replay_adding *a)
{
	const struct tsr_replaying *r = a->r;

	TSR_TRY(make_mappings(a));
	for (size_t i = 0; i < r->nparams && r->c->ntrees; i++) {
		if (lacks_state(&r->params[i]) && !r->parameters.list[i].state && !a->flat)
			return no_place(r, r->params[i].name);
	}
	a->placed = true;
	return TSR_OK;
}

enum tsr_status tsr_replay_plan_new_states(struct tsr_replaying *r)
{
	struct tsr_replay_adding *a;

	TSR_TRY(TSR_NEW(&a, 1, r->err, r->c->path));
	r->adding = a;
	a->r = r;
	TSR_TRY(tsr_replay_write_lr(a));
	a->flat = r->c->ntrees && !r->parameters.optimizer && tsr_torch_is_flat(r->c->trees[0]);
	for (size_t i = 0; i < r->nparams; i++) {
		if (lacks_state(&r->params[i]))
			return find_places(a);
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_add_new_states(struct tsr_replaying *r)
{
	struct tsr_replay_adding *a = r->adding;

	if (!lacks_any(r))
		return TSR_OK;
	if (!a->placed)
		TSR_TRY(find_places(a));
	for (size_t i = 0; i < r->nparams; i++) {
		struct tsr_replay_param *p = &r->params[i];
		const bool counter = lacks_counter(r, p);

		if (counter) {
			TSR_TRY(add_tensor(r, p, STEP, TSR_KIND_OTHER, &p->counter));
			TSR_TRY(put_tensor(a, i, STEP, p->counter));
		}
		for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++) {
			if (!p->coding[slot].codec || p->tensor[slot] != SIZE_MAX)
				continue;
			TSR_TRY(add_tensor(r, p, field_of(r, slot),
					   tsr_slot_kind((enum tsr_slot)slot), &p->tensor[slot]));
			TSR_TRY(put_tensor(a, i, field_of(r, slot), p->tensor[slot]));
		}
	}
	return tsr_build_index(r->c, r->err);
}
