/* SPDX-License-Identifier: Apache-2.0 */
/* New states get a tensor each, and a place in what was saved around the tensors. */
#include "replay/new_states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ckpt/build.h"
#include "names/roles.h"
#include "names/optimizer_ids.h"
#include "step/hyperparameters.h"
#include "step/step_math.h"

/* Marks values that were searched for states. */
#define MARK_SEARCHED 7u

#define STEP "step"

/* --- Tensors ---------------------------------------------------------------------------------- */

/* What PyTorch's optimizers call a part. */
static const char *field_of(const struct tsr_replaying *r, unsigned part)
{
	if (part == TSR_PART_VARIANCE)
		return "exp_avg_sq";
	return tsr_replay_is_sgd(r) || tsr_optimizer_is_muon(r->result->optimizer)
		       ? "momentum_buffer"
		       : "exp_avg";
}

static enum tsr_status add_tensor(struct tsr_replaying *r, const struct tsr_replay_param *p,
				  const char *field, enum tsr_kind kind, size_t *ret)
{
	const struct tsr_tensor *w = &r->c->tensors[p->tensor[TSR_PART_WEIGHT]];
	const bool scalar = kind == TSR_KIND_OTHER;
	char *name = tsr_arena_alloc(r->c->arena, strlen(p->name) + strlen(field) + 2);
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
	sprintf(name, "%s.%s", p->name, field);
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

static bool put_at(struct tsr_replaying *r, struct tsr_value *dict, const char *key,
		   struct tsr_value *value)
{
	struct tsr_arena *arena = r->c->arena;

	return tsr_value_put(arena, dict, tsr_value_string(arena, key), value);
}

/* Replace what a key has, such as None, or add it. */
static bool set_at(struct tsr_replaying *r, struct tsr_value *dict, const char *key,
		   struct tsr_value *value)
{
	for (size_t i = dict->list.n / 2; i--;) {
		if (!tsr_value_is_string(dict->list.items[2 * i], key))
			continue;
		dict->list.items[2 * i + 1] = value;
		return value != NULL;
	}
	return put_at(r, dict, key, value);
}

/* Whether @prefix ends in the name of a parameter and a dot; *head_ret: the length before it. */
static bool ends_in_name(const char *prefix, const char *name, size_t *head_ret)
{
	const size_t room = strlen(prefix) - 1, n = strlen(name);

	if (n > room || memcmp(prefix + room - n, name, n) != 0)
		return false;
	*head_ret = room - n;
	return !*head_ret || prefix[*head_ret - 1] == '.';
}

/* Learn from one prefix what others look like: with the weight's name, or that without wrappers. */
static void learn_keys(struct tsr_replay_adding *a, size_t param)
{
	const char *name = a->r->params[param].name;
	char *canonical = tsr_names_canonical(name);

	a->failed = a->failed || !canonical;
	if (ends_in_name(a->prefix[param], name, &a->head)) {
		a->sample = param;
		a->canonical = false;
	} else if (canonical && ends_in_name(a->prefix[param], canonical, &a->head)) {
		a->sample = param;
		a->canonical = true;
	}
	free(canonical);
}

/*
 * A mapping belongs to one parameter, or its keys name the parameter: "NAME.exp_avg", or
 * "state.NAME.exp_avg".
 */
static void found_state(struct tsr_replay_adding *a, struct tsr_value *dict,
			const struct tsr_value *key, size_t param)
{
	const char *field = key->type == TSR_VALUE_STRING ? strrchr(key->text.bytes, '.') : NULL;

	a->dicts[param] = dict;
	if (!field || a->prefix[param])
		return;
	a->prefix[param] = tsr_arena_copy(a->r->c->arena, key->text.bytes,
					  (size_t)(field + 1 - key->text.bytes));
	a->failed = a->failed || !a->prefix[param];
	if (a->prefix[param] && a->sample == SIZE_MAX)
		learn_keys(a, param);
}

static void search(struct tsr_replay_adding *a, struct tsr_value *v)
{
	if (!v || v->mark == MARK_SEARCHED)
		return;
	v->mark = MARK_SEARCHED;
	if (tsr_value_mapping(v) && tsr_optim_is(v)) {
		a->optimizer = a->optimizer ? a->optimizer : v;
		a->noptimizers++;
	}
	for (size_t i = 1; v->type == TSR_VALUE_DICT && i < v->list.n; i += 2) {
		const struct tsr_value *child = v->list.items[i];

		if (child->type == TSR_VALUE_TENSOR && a->param_of[child->tensor.array] != SIZE_MAX)
			found_state(a, v, v->list.items[i - 1], a->param_of[child->tensor.array]);
	}
	for (size_t i = 0; i < tsr_value_nchildren(v); i++)
		search(a, tsr_value_child(v, i));
}

/* Find the mappings that hold the existing states. */
static void find_dicts(struct tsr_replay_adding *a)
{
	struct tsr_replaying *r = a->r;

	a->sample = SIZE_MAX;
	for (size_t i = 0; i < r->c->ntrees; i++)
		search(a, r->c->trees[i]);
}

/* --- A new optimizer -------------------------------------------------------------------------- */

static bool put_real(struct tsr_replaying *r, struct tsr_value *dict, const char *key, double x)
{
	return put_at(r, dict, key, tsr_value_float(r->c->arena, x));
}

static bool put_betas(struct tsr_replaying *r, struct tsr_value *dict, const struct tsr_hyper *h)
{
	struct tsr_value *betas = tsr_value_new(r->c->arena, TSR_VALUE_TUPLE);

	for (unsigned i = TSR_HYPER_BETA1; betas && i <= TSR_HYPER_BETA2; i++) {
		struct tsr_value *beta = tsr_value_float(r->c->arena, h->value[i]);

		if (!beta || !tsr_value_add(r->c->arena, betas, beta))
			return false;
	}
	return put_at(r, dict, "betas", betas);
}

/* What decoupled weight decay needs; schedulers continue from initial_lr, too. */
static bool put_decoupling(struct tsr_replaying *r, struct tsr_value *dict, size_t group)
{
	const struct tsr_hyper *h = &r->result->hyper[group];
	const bool decouple = h->value[TSR_HYPER_DECOUPLE_LR] != 0;

	if ((decouple ||
	     tsr_hyper_is_set(&r->recording->groups[group].hyper, TSR_HYPER_INITIAL_LR) ||
	     tsr_hyper_is_set(&r->options->hyper, TSR_HYPER_INITIAL_LR)) &&
	    !put_real(r, dict, "initial_lr", h->value[TSR_HYPER_INITIAL_LR]))
		return false;
	return !decouple || put_at(r, dict, "decouple_lr", tsr_value_bool(r->c->arena, true));
}

static bool put_muon(struct tsr_replaying *r, struct tsr_value *dict, const struct tsr_hyper *h)
{
	static const double numbers[] = { TSR_MUON_A, TSR_MUON_B, TSR_MUON_C };
	struct tsr_arena *arena = r->c->arena;
	struct tsr_value *list = tsr_value_new(arena, TSR_VALUE_TUPLE);
	const bool match = h->value[TSR_HYPER_MATCH_RMS] != 0;

	for (size_t i = 0; list && i < sizeof(numbers) / sizeof(*numbers); i++) {
		struct tsr_value *value = tsr_value_float(arena, numbers[i]);

		if (!value || !tsr_value_add(arena, list, value))
			return false;
	}
	return put_real(r, dict, "momentum", h->value[TSR_HYPER_MOMENTUM]) &&
	       put_at(r, dict, "nesterov",
		      tsr_value_bool(arena, h->value[TSR_HYPER_NESTEROV] != 0)) &&
	       put_real(r, dict, "eps", h->value[TSR_HYPER_EPS]) &&
	       put_at(r, dict, "ns_coefficients", list) &&
	       put_at(r, dict, "ns_steps", tsr_value_int(arena, TSR_MUON_ROUNDS)) &&
	       put_at(r, dict, "adjust_lr_fn",
		      tsr_value_string(arena, match ? "match_rms_adamw" : "original"));
}

/* Hyperparameters as PyTorch calls them; lr is that of the last step. */
static bool put_hyper(struct tsr_replaying *r, struct tsr_value *dict, size_t group)
{
	const enum tsr_optimizer optimizer = r->result->optimizer;
	const struct tsr_hyper *h = &r->result->hyper[group];
	bool ok = put_real(r, dict, "lr", tsr_replay_last_lr(r, group)) &&
		  put_real(r, dict, "weight_decay", h->value[TSR_HYPER_WEIGHT_DECAY]) &&
		  put_decoupling(r, dict, group);

	if (tsr_replay_is_sgd(r)) {
		const bool nesterov = h->value[TSR_HYPER_NESTEROV] != 0;

		return ok && put_real(r, dict, "momentum", h->value[TSR_HYPER_MOMENTUM]) &&
		       put_real(r, dict, "dampening", h->value[TSR_HYPER_DAMPENING]) &&
		       put_at(r, dict, "nesterov", tsr_value_bool(r->c->arena, nesterov));
	}
	if (tsr_optimizer_is_muon(optimizer))
		return ok && put_muon(r, dict, h);
	ok = ok && put_betas(r, dict, h);
	return ok && (optimizer == TSR_OPTIMIZER_LION ||
		      put_real(r, dict, "eps", h->value[TSR_HYPER_EPS]));
}

/*
 * One group of the recording.  Its parameters get the next numbers in the recorded order, which is
 * that of the run's own optimizer; those that are stepped get a state.
 */
static struct tsr_value *make_group(struct tsr_replay_adding *a, size_t group,
				    struct tsr_value *state, int64_t *next)
{
	struct tsr_replaying *r = a->r;
	struct tsr_arena *arena = r->c->arena;
	struct tsr_value *dict = tsr_value_new(arena, TSR_VALUE_DICT);
	struct tsr_value *params = tsr_value_new(arena, TSR_VALUE_LIST);
	struct tsr_value *names = tsr_value_new(arena, TSR_VALUE_LIST);
	bool ok = dict && params && names && put_hyper(r, dict, group);

	for (size_t i = 0; ok && i < r->nrecorded; i++) {
		const struct tsr_replay_listed *p = &r->listed[i];
		struct tsr_value *id, *name;

		if (p->group != group)
			continue;
		id = tsr_value_int(arena, (*next)++);
		name = tsr_value_string(arena, p->name);
		ok = id && name && tsr_value_add(arena, params, id) &&
		     tsr_value_add(arena, names, name);
		if (!ok || p->param == SIZE_MAX)
			continue;
		a->dicts[p->param] = tsr_value_new(arena, TSR_VALUE_DICT);
		ok = a->dicts[p->param] && tsr_value_put(arena, state, id, a->dicts[p->param]);
	}
	ok = ok && put_at(r, dict, "params", params) && put_at(r, dict, "param_names", names);
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

static enum tsr_status make_optimizer(struct tsr_replay_adding *a, struct tsr_value *root)
{
	struct tsr_replaying *r = a->r;
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
	for (size_t g = 0; ok && g < r->result->ngroups; g++) {
		struct tsr_value *group = make_group(a, g, state, &next);

		ok = group && tsr_value_add(arena, groups, group);
	}
	ok = ok && put_at(r, optimizer, "state", state) &&
	     put_at(r, optimizer, "param_groups", groups) &&
	     set_at(r, root, "optimizer", optimizer);
	return ok ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

/* --- Where a state goes ----------------------------------------------------------------------- */

static bool is_flat(const struct tsr_value *v)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);

	for (size_t i = 1; mapping && i < mapping->list.n; i += 2) {
		if (mapping->list.items[i]->type != TSR_VALUE_TENSOR)
			return false;
	}
	return mapping != NULL;
}

static bool has_dicts(const struct tsr_replay_adding *a)
{
	for (size_t i = 0; i < a->r->nparams; i++) {
		if (!a->dicts[i])
			return false;
	}
	return true;
}

/* Where keys name their parameters, those of new states do as well. */
static enum tsr_status name_keys(struct tsr_replay_adding *a, size_t param)
{
	struct tsr_replaying *r = a->r;
	char *canonical = tsr_names_canonical(r->params[param].name), *own;
	const char *name = a->canonical ? canonical : r->params[param].name;

	if (!canonical)
		return tsr_fail_nomem(r->err, r->c->path);
	own = tsr_arena_alloc(r->c->arena, a->head + strlen(name) + 2);
	if (own)
		sprintf(own, "%.*s%s.", (int)a->head, a->prefix[a->sample], name);
	free(canonical);
	a->prefix[param] = own;
	a->dicts[param] = a->dicts[a->sample];
	return own ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

/* Find or make a mapping for each new state. */
static enum tsr_status make_dicts(struct tsr_replay_adding *a)
{
	struct tsr_replaying *r = a->r;
	struct tsr_value *root = r->c->ntrees == 1 ? r->c->trees[0] : NULL;
	struct tsr_value *mapping = (struct tsr_value *)tsr_value_mapping(root);

	if (has_dicts(a))
		return TSR_OK;
	for (size_t i = 0; i < r->nparams && a->sample != SIZE_MAX; i++) {
		if (!a->dicts[i])
			TSR_TRY(name_keys(a, i));
	}
	if (has_dicts(a))
		return TSR_OK;
	if (a->optimizer)
		return tsr_replay_number_states(a);
	if (!mapping || is_flat(root))
		return TSR_OK;
	for (size_t i = 0; i < r->nparams; i++) {
		if (a->dicts[i])
			return TSR_OK;
	}
	return make_optimizer(a, mapping);
}

static enum tsr_status put_prefixed(struct tsr_replay_adding *a, size_t param, const char *field,
				    struct tsr_value *value)
{
	struct tsr_replaying *r = a->r;
	char *key = tsr_arena_alloc(r->c->arena, strlen(a->prefix[param]) + strlen(field) + 1);

	if (!key)
		return tsr_build_nomem(r->c, r->err);
	sprintf(key, "%s%s", a->prefix[param], field);
	return put_at(r, a->dicts[param], key, value) ? TSR_OK : tsr_build_nomem(r->c, r->err);
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
	struct tsr_value *root = r->c->ntrees ? r->c->trees[0] : NULL;
	struct tsr_value *value;
	bool ok;

	if (!root)
		return TSR_OK;
	value = tsr_value_tensor(r->c->arena, r->c->tensors[tensor].plane[0]);
	if (a->dicts[param] && a->prefix[param])
		return put_prefixed(a, param, field, value);
	if (a->dicts[param])
		ok = set_at(r, a->dicts[param], field, value);
	else if (a->flat)
		ok = put_at(r, (struct tsr_value *)tsr_value_mapping(root),
			    r->c->tensors[tensor].name, value);
	else
		return no_place(r, r->params[param].name);
	return ok ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

/* --- All of it -------------------------------------------------------------------------------- */

static bool lacks_state(const struct tsr_replay_param *p)
{
	for (unsigned part = TSR_PART_MOMENTUM; part < TSR_PARTS; part++) {
		if (p->coding[part].codec && p->tensor[part] == SIZE_MAX)
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

	TSR_TRY(make_dicts(a));
	for (size_t i = 0; i < r->nparams && r->c->ntrees; i++) {
		if (lacks_state(&r->params[i]) && !a->dicts[i] && !a->flat)
			return no_place(r, r->params[i].name);
	}
	a->placed = true;
	return TSR_OK;
}

static enum tsr_status plan_all(struct tsr_replay_adding *a)
{
	struct tsr_replaying *r = a->r;

	find_dicts(a);
	if (a->failed)
		return tsr_build_nomem(r->c, r->err);
	TSR_TRY(tsr_replay_write_lr(a));
	a->flat = r->c->ntrees && !a->optimizer && is_flat(r->c->trees[0]);
	for (size_t i = 0; i < r->nparams; i++) {
		if (lacks_state(&r->params[i]))
			return find_places(a);
	}
	return TSR_OK;
}

enum tsr_status tsr_replay_plan_new_states(struct tsr_replaying *r)
{
	struct tsr_replay_adding *a = calloc(1, sizeof(*a));

	if (!a)
		return tsr_fail_nomem(r->err, r->c->path);
	r->adding = a;
	a->r = r;
	a->dicts = calloc(r->nparams + 1, sizeof(struct tsr_value *));
	a->prefix = calloc(r->nparams + 1, sizeof(char *));
	a->param_of = tsr_replay_index_states(r);
	if (!a->dicts || !a->prefix || !a->param_of)
		return tsr_fail_nomem(r->err, r->c->path);
	return plan_all(a);
}

void tsr_replay_free_new_states(struct tsr_replaying *r)
{
	if (!r->adding)
		return;
	free(r->adding->dicts);
	free(r->adding->prefix);
	free(r->adding->param_of);
	free(r->adding);
	r->adding = NULL;
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
		for (unsigned part = TSR_PART_MOMENTUM; part < TSR_PARTS; part++) {
			if (!p->coding[part].codec || p->tensor[part] != SIZE_MAX)
				continue;
			TSR_TRY(add_tensor(r, p, field_of(r, part),
					   tsr_part_kind((enum tsr_part)part), &p->tensor[part]));
			TSR_TRY(put_tensor(a, i, field_of(r, part), p->tensor[part]));
		}
	}
	return tsr_build_index(r->c, r->err);
}
