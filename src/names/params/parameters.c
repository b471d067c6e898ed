/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a checkpoint's parameters: found by name, and where their state is in what was saved. */
#include "names/params/parameters.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "ckpt/read.h"
#include "format/value_walk.h"
#include "names/name_rules.h"
#include "names/optimizer_ids.h"
#include "text/named.h"

/* --- Tensors by name -------------------------------------------------------------------------- */

typedef bool test_fn(const struct tsr_parameters *p, size_t tensor);

static bool is_weight(const struct tsr_parameters *p, size_t tensor)
{
	return p->c->tensors[tensor].kind == TSR_KIND_WEIGHT &&
	       p->roles[tensor].role == TSR_ROLE_NONE;
}

static bool is_scalar(const struct tsr_parameters *p, size_t tensor)
{
	const struct tsr_tensor *t = &p->c->tensors[tensor];

	return !t->rank && t->kind == TSR_KIND_OTHER && tsr_tensor_has_f32(t) &&
	       p->roles[tensor].role == TSR_ROLE_NONE;
}

/* List the tensors for which @test holds, by names without wrappers. */
static enum tsr_status list_tensors(const struct tsr_parameters *p, test_fn *test,
				    struct tsr_names *ret, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = p->c;

	ret->n = 0;
	TSR_TRY(TSR_TAKE(&ret->list, c->ntensors + 1, p->arena, err, c->path));
	for (size_t i = 0; i < c->ntensors; i++) {
		if (!test(p, i))
			continue;
		ret->list[ret->n] = (struct tsr_named){
			tsr_names_canonical(p->arena, c->tensors[i].name), i
		};
		if (!ret->list[ret->n++].name)
			return tsr_fail_nomem(err, c->path);
	}
	tsr_named_sort(ret->list, ret->n);
	return TSR_OK;
}

/* The tensor of a name for which @test holds, or else the only one of the list without wrappers. */
static enum tsr_status find_tensor(const struct tsr_parameters *p, test_fn *test,
				   const struct tsr_names *names, const char *name, size_t *ret,
				   struct tsr_err *err)
{
	const struct tsr_tensor *exact = tsr_checkpoint_find(p->c, name);
	const struct tsr_named *found, *end = names->list + names->n;
	const char *canonical;

	*ret = SIZE_MAX;
	if (exact && test(p, (size_t)(exact - p->c->tensors))) {
		*ret = (size_t)(exact - p->c->tensors);
		return TSR_OK;
	}
	canonical = tsr_names_canonical(p->arena, name);
	if (!canonical)
		return tsr_fail_nomem(err, p->c->path);
	found = tsr_named_find(names->list, names->n, canonical);
	if (found && (found + 1 == end || strcmp(found[1].name, found->name) != 0))
		*ret = found->index;
	return TSR_OK;
}

enum tsr_status tsr_parameters_weight(const struct tsr_parameters *p, const char *name, size_t *ret,
				      struct tsr_err *err)
{
	return find_tensor(p, is_weight, &p->weights, name, ret, err);
}

/* --- The table -------------------------------------------------------------------------------- */

static enum tsr_status fill(struct tsr_parameters *p, struct tsr_err *err)
{
	TSR_TRY(tsr_names_fill(p->c, p->rules, p->nrules, p->is_param, p, err));
	TSR_TRY(list_tensors(p, is_weight, &p->weights, err));
	return list_tensors(p, is_scalar, &p->scalars, err);
}

enum tsr_status tsr_parameters_find(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
				    unsigned nrules, struct tsr_parameters *p, struct tsr_err *err)
{
	p->c = c;
	p->rules = rules;
	p->nrules = nrules;
	TSR_TRY(fill(p, err));
	return tsr_name_rules_note(c, rules, nrules, err);
}

enum tsr_status tsr_parameters_know(struct tsr_parameters *p, const char *name, struct tsr_err *err)
{
	size_t at;

	TSR_TRY(tsr_parameters_weight(p, name, &at, err));
	if (at != SIZE_MAX)
		return TSR_OK;
	TSR_TRY(find_tensor(p, is_scalar, &p->scalars, name, &at, err));
	if (at != SIZE_MAX)
		p->is_param[at] = p->outdated = true;
	return TSR_OK;
}

enum tsr_status tsr_parameters_update(struct tsr_parameters *p, struct tsr_err *err)
{
	const bool outdated = p->outdated;

	p->outdated = false;
	return outdated ? fill(p, err) : TSR_OK;
}

enum tsr_status tsr_parameters_keep(struct tsr_parameters *p, const bool *kept, struct tsr_err *err)
{
	const size_t ntensors = p->n;

	TSR_TRY(TSR_TAKE(&p->of_weight, ntensors + 1, p->arena, err, p->c->path));
	p->n = 0;
	for (size_t i = 0; i < ntensors; i++) {
		p->of_weight[i] = kept[i] ? p->n : SIZE_MAX;
		if (kept[i])
			p->list[p->n++] = p->list[i];
	}
	return TSR_OK;
}

/* --- The model ---------------------------------------------------------------------------------- */

enum tsr_status tsr_names_model(struct tsr_checkpoint *c, const struct tsr_name_rule *rules,
				unsigned nrules, bool *model, struct tsr_err *err)
{
	TSR_SCOPED(tsr_parameters_free) struct tsr_parameters p = { .n = 0 };

	TSR_TRY(tsr_names_fill(c, rules, nrules, NULL, &p, err));
	for (size_t i = 0; i < c->ntensors; i++) {
		const enum tsr_kind kind = c->tensors[i].kind;

		model[i] = !p.roles[i].state && kind != TSR_KIND_MOMENTUM &&
			   kind != TSR_KIND_VARIANCE;
	}
	return TSR_OK;
}

/* --- What was saved around the tensors -------------------------------------------------------- */

/*
 * A mapping belongs to one parameter, or its keys name the parameter: "NAME.exp_avg", or
 * "state.NAME.exp_avg".
 */
static void found_state(struct tsr_parameter *p, struct tsr_value *dict,
			const struct tsr_value *key)
{
	const char *field = key->type == TSR_VALUE_STRING ? strrchr(key->text.bytes, '.') : NULL;

	p->state = dict;
	if (!field || p->prefix)
		return;
	p->prefix = key->text.bytes;
	p->prefix_nbytes = (size_t)(field + 1 - key->text.bytes);
}

static bool is_number(const struct tsr_value *v)
{
	return v->type == TSR_VALUE_INT || v->type == TSR_VALUE_FLOAT;
}

/* All groups have the same number, and from here on one value. */
static enum tsr_status take_group_step(struct tsr_parameters *p, struct tsr_value *group,
				       struct tsr_value *count, struct tsr_err *err)
{
	const double first = tsr_value_number(p->group_step ? p->group_step : count);

	if (tsr_value_number(count) != first)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: param_groups: found step %.17g and %.17g, expected the same",
				p->c->path, first, tsr_value_number(count));
	p->group_step = p->group_step ? p->group_step : count;
	(void)tsr_value_set_at(p->c->arena, group, "step", p->group_step);
	return TSR_OK;
}

/* A value of its own, since it may change: equal small numbers of a pickle are one value. */
static enum tsr_status own_number(struct tsr_parameters *p, struct tsr_value **place,
				  struct tsr_err *err)
{
	struct tsr_value *own = tsr_value_new(p->c->arena, (*place)->type);

	if (!own)
		return tsr_fail_nomem(err, p->c->path);
	*own = **place;
	*place = own;
	return TSR_OK;
}

/* States of parameters in a mapping, and a number of steps beside them; or a group that has one. */
static enum tsr_status look_at(struct tsr_parameters *p, struct tsr_value *dict,
			       struct tsr_err *err)
{
	struct tsr_parameter *last = NULL;
	struct tsr_value *count = NULL;

	for (size_t i = 0; i + 1 < dict->list.n; i += 2) {
		struct tsr_value *key = dict->list.items[i], *v = dict->list.items[i + 1];

		if (tsr_value_is_string(key, "step") && is_number(v)) {
			TSR_TRY(own_number(p, &dict->list.items[i + 1], err));
			count = dict->list.items[i + 1];
		}
		if (v->type != TSR_VALUE_TENSOR || p->of_state[v->tensor.array] == SIZE_MAX)
			continue;
		last = &p->list[p->of_state[v->tensor.array]];
		found_state(last, dict, key);
	}
	if (last && count && last->counter == SIZE_MAX)
		last->count = count;
	if (count && tsr_value_at(dict, "max_precondition_dim"))
		return take_group_step(p, dict, count, err);
	return TSR_OK;
}

static enum tsr_status walk(struct tsr_parameters *p, struct tsr_value *root, struct tsr_err *err)
{
	struct tsr_value_walk walk = { .root = root, .mark = TSR_MARK_PARAMETERS };
	struct tsr_value *v;

	while ((v = tsr_value_walk_next(&walk)) != NULL) {
		if (tsr_value_mapping(v) && tsr_optim_is(v)) {
			p->optimizer = p->optimizer ? p->optimizer : v;
			p->noptimizers++;
		}
		if (v->type == TSR_VALUE_DICT)
			TSR_TRY(look_at(p, v, err));
	}
	return TSR_OK;
}

enum tsr_status tsr_parameters_place(struct tsr_parameters *p, struct tsr_err *err)
{
	const struct tsr_checkpoint *c = p->c;

	TSR_TRY(TSR_TAKE(&p->of_state, c->narrays + 1, p->arena, err, c->path));
	for (size_t i = 0; i < c->narrays; i++)
		p->of_state[i] = SIZE_MAX;
	for (size_t i = 0; i < p->n; i++) {
		for (unsigned slot = TSR_SLOT_MOMENTUM; slot < TSR_SLOTS; slot++) {
			const size_t tensor = p->list[i].tensor[slot];

			if (tensor != SIZE_MAX)
				p->of_state[c->tensors[tensor].plane[0]] = i;
		}
	}
	for (size_t i = 0; i < c->ntrees; i++)
		TSR_TRY(walk(p, c->trees[i], err));
	for (size_t i = 0; i < p->n; i++) {
		if (p->list[i].counter == SIZE_MAX && !p->list[i].count)
			p->list[i].count = p->group_step;
	}
	return TSR_OK;
}
