/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parameters an optimizer numbers, by rules that training programs follow: each group has its
 * parameters in the order of the model.  A rule fits if the sizes of groups and the shapes of all
 * states do, and counts only if every other rule that fits says the same.
 */
#include "names/optimizer_ids.h"

#include "base/fail.h"
#include "ckpt/checkpoint_model.h"
#include "names/aliases.h"
#include "text/shape.h"

/* Ids or parameters, by their index. */
struct run {
	size_t *items;
	size_t n;
};

struct proving {
	struct tsr_checkpoint *c;
	struct tsr_optim *o;
	const struct tsr_param *params;
	size_t nparams;
	struct run trained; /* parameters without buffers, in an order of the model */
	struct run ids, class; /* for one part of a rule */
	size_t *left, *right; /* the first and the last place in a class that an id can have */
	size_t *fit,
		*found; /* per id its parameter, by the rule that is tried and by those that fit */
	size_t ngroups; /* that are not empty */
	size_t first_nids; /* of the first of these */
	const char *order, *rule; /* in words: of the model, and of the first rule that fits */
	const char *found_order;
	bool conflict; /* rules fit that differ, or one fits in several ways */
	struct tsr_err *err;
};

enum fit { FIT_NONE, FIT_MANY, FIT_ONE };

/* --- One part of a rule ----------------------------------------------------------------------- */

bool tsr_optim_can_have(const struct tsr_checkpoint *c, const struct tsr_optim *o,
			const struct tsr_optim_id *id, size_t param)
{
	const struct tsr_array *a, *b = &c->arrays[param];

	if (id->array == SIZE_MAX)
		return true;
	a = &c->arrays[id->array];
	return tsr_shape_compare(a->rank, a->shape, b->rank, b->shape) == 0 ||
	       (o->reduced && tsr_shape_is_reduced(a->rank, a->shape, b->rank, b->shape));
}

static bool has_shape(const struct proving *p, size_t id, size_t param)
{
	return tsr_optim_can_have(p->c, p->o, &p->o->ids[id], p->params[param].array);
}

/* Give the ids of a part parameters of its class in order; unused ones are those that are frozen. */
static enum fit fit_part(struct proving *p)
{
	const struct run *ids = &p->ids, *class = &p->class;
	enum fit fit = FIT_ONE;
	size_t at = 0;

	for (size_t i = 0; i < ids->n; i++, at++) {
		while (at < class->n && !has_shape(p, ids->items[i], class->items[at]))
			at++;
		if (at >= class->n)
			return FIT_NONE;
		p->left[i] = at;
	}
	at = class->n;
	for (size_t i = ids->n; i--;) {
		do
			at--;
		while (!has_shape(p, ids->items[i], class->items[at]));
		p->right[i] = at;
	}
	for (size_t i = 0; i < ids->n; i++) {
		const size_t id = ids->items[i];

		if (p->left[i] == p->right[i])
			p->fit[id] = class->items[p->left[i]];
		else if (p->o->ids[id].array != SIZE_MAX)
			fit = FIT_MANY;
	}
	return fit;
}

static void add_ids(struct proving *p, size_t first, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p->ids.items[p->ids.n++] = first + i;
}

/* --- Rules ------------------------------------------------------------------------------------ */

/* Note that a rule fits, and whether it says what those before it said. */
static void take_fit(struct proving *p, enum fit fit, const char *rule)
{
	if (fit == FIT_NONE)
		return;
	if (fit == FIT_MANY)
		p->conflict = true;
	for (size_t i = 0; i < p->o->nids && p->rule && fit == FIT_ONE; i++) {
		if (p->o->ids[i].array != SIZE_MAX && p->fit[i] != p->found[i])
			p->conflict = true;
	}
	if (p->rule)
		return;
	p->rule = rule;
	p->found_order = p->order;
	memcpy(p->found, p->fit, p->o->nids * sizeof(*p->found));
}

static void forget_fit(struct proving *p)
{
	for (size_t i = 0; i < p->o->nids; i++)
		p->fit[i] = SIZE_MAX;
}

/* A number of a group; NAN if it has none of that name. */
static double number_of(const struct proving *p, size_t id, const char *key)
{
	const struct tsr_value *group = p->o->groups->list.items[p->o->ids[id].group];

	return tsr_value_number(tsr_value_at(group, key));
}

/* What a schedule started from, if it says so. */
static double rate_of(const struct proving *p, size_t id)
{
	const double initial = number_of(p, id, "initial_lr");

	return initial == initial ? initial : number_of(p, id, "lr");
}

/* Whether learning rates rise, or fall, from each group to the next. */
static bool rates_are_graded(const struct proving *p)
{
	const struct tsr_optim *o = p->o;
	bool rising = true, falling = true;

	for (size_t i = 1; i < o->nids; i++) {
		const double before = rate_of(p, i - 1), rate = rate_of(p, i);

		if (o->ids[i].group == o->ids[i - 1].group)
			continue;
		rising = rising && rate > before;
		falling = falling && rate < before;
	}
	return rising || falling;
}

static void use_all_trained(struct proving *p)
{
	p->class.n = p->trained.n;
	memcpy(p->class.items, p->trained.items, p->trained.n * sizeof(*p->class.items));
}

static void try_one_group(struct proving *p)
{
	forget_fit(p);
	p->ids.n = 0;
	add_ids(p, 0, p->o->nids);
	use_all_trained(p);
	take_fit(p, fit_part(p), "one group in the order of the model");
}

/* A learning rate per layer: groups follow each other in the order of the model, or in reverse. */
static void try_layers(struct proving *p, bool reversed)
{
	const struct tsr_optim *o = p->o;
	size_t end = o->nids;

	if (p->ngroups < 3 || o->nids != p->trained.n || !rates_are_graded(p))
		return;
	forget_fit(p);
	p->ids.n = 0;
	if (!reversed)
		add_ids(p, 0, o->nids);
	while (reversed && end) {
		size_t first = end - 1;

		while (first && o->ids[first - 1].group == o->ids[end - 1].group)
			first--;
		add_ids(p, first, end - first);
		end = first;
	}
	use_all_trained(p);
	take_fit(p, fit_part(p),
		 reversed ? "a learning rate per layer, in the reverse order of the model"
			  : "a learning rate per layer, in the order of the model");
}

static bool decays_by_rank(const struct proving *p, size_t param)
{
	return p->c->arrays[p->params[param].array].rank >= 2;
}

static bool decays_unless_bias(const struct proving *p, size_t param)
{
	const char *name = p->params[param].name, *dot = strrchr(name, '.');

	return strstr(dot ? dot : name, "bias") == NULL;
}

/* What Trainer leaves out of decay, too: whatever has "norm" or a component like "ln_1" in its name. */
static bool decays_unless_norm(const struct proving *p, size_t param)
{
	const char *name = p->params[param].name;

	if (!decays_unless_bias(p, param) || strstr(name, "norm") || strstr(name, "Norm"))
		return false;
	for (const char *at = name; at; at = strchr(at, '.')) {
		at += *at == '.';
		if (strncmp(at, "ln_", 3) == 0 || strncmp(at, "ln.", 3) == 0)
			return false;
	}
	return true;
}

typedef bool decays_fn(const struct proving *p, size_t param);

/* Two groups, with and without weight decay, each in the order of the model. */
static void try_decay(struct proving *p, decays_fn *decays, bool decay_first, const char *rule)
{
	enum fit fit = FIT_ONE;

	forget_fit(p);
	for (unsigned part = 0; part < 2 && fit != FIT_NONE; part++) {
		enum fit here;

		p->ids.n = p->class.n = 0;
		add_ids(p, part ? p->first_nids : 0,
			part ? p->o->nids - p->first_nids : p->first_nids);
		for (size_t i = 0; i < p->trained.n; i++) {
			const size_t param = p->trained.items[i];

			if (decays(p, param) == (decay_first == (part == 0)))
				p->class.items[p->class.n++] = param;
		}
		here = fit_part(p);
		fit = here < fit ? here : fit;
	}
	take_fit(p, fit, rule);
}

/* By names, the group without decay must have none. */
static void try_decay_by_name(struct proving *p, decays_fn *decays, const char *rule)
{
	const double first = number_of(p, 0, "weight_decay");
	const double second = number_of(p, p->first_nids, "weight_decay");

	if (first > 0 && second == 0)
		try_decay(p, decays, true, rule);
	if (first == 0 && second > 0)
		try_decay(p, decays, false, rule);
}

static void try_rules(struct proving *p)
{
	static const char by_rank[] = "groups with and without weight decay (by rank), each in the "
				      "order of the model";

	if (p->ngroups == 1)
		try_one_group(p);
	try_layers(p, false);
	try_layers(p, true);
	if (p->ngroups != 2)
		return;
	try_decay(p, decays_by_rank, true, by_rank);
	try_decay(p, decays_by_rank, false, by_rank);
	try_decay_by_name(p, decays_unless_norm,
			  "groups with and without weight decay (biases and norms), each in the "
			  "order of the model");
	try_decay_by_name(p, decays_unless_bias,
			  "groups with and without weight decay (biases), each in the order of the "
			  "model");
}

/* --- Orders of the model ---------------------------------------------------------------------- */

static void list_trained(struct proving *p)
{
	p->trained.n = 0;
	for (size_t i = 0; i < p->nparams; i++) {
		if (!tsr_alias_is_buffer(p->params[i].name))
			p->trained.items[p->trained.n++] = i;
	}
}

/* The orders of architectures that have such names. */
static enum tsr_status try_architectures(struct proving *p)
{
	const size_t n = p->trained.n;
	TSR_OWNED(free) const char **names = NULL;
	TSR_OWNED(free) size_t *order = NULL;

	TSR_TRY(TSR_NEW(&names, n + 1, p->err, p->c->path));
	TSR_TRY(TSR_NEW(&order, n + 1, p->err, p->c->path));
	for (size_t i = 0; i < tsr_architecture_count(); i++) {
		bool applies = false;

		list_trained(p);
		for (size_t k = 0; k < n; k++)
			names[k] = p->params[p->trained.items[k]].name;
		TSR_TRY(tsr_architecture_sort(i, names, n, order, &applies, p->err));
		if (!applies)
			continue;
		for (size_t k = 0; k < n; k++)
			order[k] = p->trained.items[order[k]];
		memcpy(p->trained.items, order, n * sizeof(*order));
		p->order = tsr_architecture_name(i);
		try_rules(p);
	}
	return TSR_OK;
}

static enum tsr_status prove(struct proving *p, bool ordered, bool *proved_ret)
{
	const struct tsr_optim *o = p->o;

	for (size_t i = 0; i < o->nids; i++) {
		p->ngroups += !i || o->ids[i].group != o->ids[i - 1].group;
		p->first_nids += o->ids[i].group == o->ids[0].group;
	}
	list_trained(p);
	if (ordered)
		try_rules(p);
	else
		TSR_TRY(try_architectures(p));
	*proved_ret = p->rule && !p->conflict;
	if (!*proved_ret)
		return TSR_OK;
	for (size_t i = 0; i < p->o->nids; i++)
		p->o->ids[i].name = p->found[i] == SIZE_MAX ? NULL : p->params[p->found[i]].name;
	return tsr_build_remark(
		p->c, p->err,
		"%s: %.200s: its numbers fit the names of parameters in one way only: %s%s%s",
		p->c->path, p->o->path, p->rule, p->found_order ? ", as defined by " : "",
		p->found_order ? p->found_order : "");
}

enum tsr_status tsr_order_prove(struct tsr_checkpoint *c, struct tsr_optim *o,
				const struct tsr_param *params, size_t nparams, bool ordered,
				bool *proved_ret, struct tsr_err *err)
{
	struct proving p = { .c = c, .o = o, .params = params, .nparams = nparams, .err = err };
	TSR_OWNED(free) size_t *room = NULL;

	*proved_ret = false;
	TSR_TRY(TSR_NEW(&room, 5 * (o->nids + 1) + 2 * (nparams + 1), err, c->path));
	p.ids.items = room;
	p.left = p.ids.items + o->nids + 1;
	p.right = p.left + o->nids + 1;
	p.fit = p.right + o->nids + 1;
	p.found = p.fit + o->nids + 1;
	p.trained.items = p.found + o->nids + 1;
	p.class.items = p.trained.items + nparams + 1;
	return prove(&p, ordered, proved_ret);
}
