/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which state belongs to which parameter.  torch.optim numbers parameters by their position over all
 * param_groups, so a number means nothing without the names, or the model whose order it follows.
 */
#include <stdio.h>

#include "base/fail.h"
#include "base/order.h"
#include "text/named.h"
#include "ckpt/checkpoint_model.h"
#include "text/shape.h"
#include "names/aliases.h"
#include "names/optimizer_ids.h"

/* --- Reading ---------------------------------------------------------------------------------- */

bool tsr_optim_is(const struct tsr_value *v)
{
	const struct tsr_value *groups = tsr_value_at(v, "param_groups");

	return tsr_value_mapping(tsr_value_at(v, "state")) && groups &&
	       groups->type == TSR_VALUE_LIST;
}

static const struct tsr_value *group_of(const struct tsr_optim *o, size_t group)
{
	return o->groups->list.items[group];
}

/* The list of a group's parameters; Megatron's torch_dist saves groups without one. */
static const struct tsr_value *params_of(const struct tsr_optim *o, size_t group)
{
	static const struct tsr_value none = { .type = TSR_VALUE_LIST };
	const struct tsr_value *params = tsr_value_at(group_of(o, group), "params");

	return params && params->type == TSR_VALUE_LIST ? params : &none;
}

uint64_t tsr_optim_bytewidth(const struct tsr_optim *o, size_t group)
{
	uint64_t n = 0;

	tsr_value_get_u64(tsr_value_at(group_of(o, group), "master_bytewidth"), &n);
	return n;
}

void tsr_optim_take_eps(const struct tsr_optim *o, float *eps)
{
	for (size_t i = 0; i < o->groups->list.n; i++) {
		const struct tsr_value *v = tsr_value_at(group_of(o, i), "eps");
		const double value = v ? tsr_value_real(v) : 0;

		if (value >= 0x1p-126 && value < 1 && (*eps == 0 || (float)value < *eps))
			*eps = (float)value;
	}
}

TSR_COMPARE(by_id, struct tsr_optim_id *, tsr_value_compare_texts((*a)->id, (*b)->id))

static bool is_id(const struct tsr_value *v)
{
	return v->type == TSR_VALUE_INT || v->type == TSR_VALUE_STRING;
}

/* An entry of a state that has its parameter's shape. */
static size_t find_shaped(const struct tsr_value *state)
{
	static const char *const names[] = { "exp_avg",
					     "exp_avg_sq",
					     "momentum_buffer",
					     "exp_avg::quantized",
					     "exp_avg_sq::quantized",
					     "momentum_buffer::quantized",
					     "error_bits",
					     "master_param",
					     "state1",
					     "square_avg",
					     "sum" };

	/* lpmm's codes of 4 bits are flat and padded. */
	if (tsr_value_at(state, "exp_avg_qstate"))
		return SIZE_MAX;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const struct tsr_value *v = tsr_value_at(state, names[i]);

		if (v && v->type == TSR_VALUE_TENSOR)
			return v->tensor.array;
	}
	return SIZE_MAX;
}

/* Names are read again and again, and many entries may share one. */
static enum tsr_status check_length(struct tsr_checkpoint *c, const struct tsr_optim *o,
				    const struct tsr_value *name, struct tsr_err *err)
{
	if (name->type != TSR_VALUE_STRING)
		return TSR_OK;
	if (name->text.nbytes <= TSR_NAME_MAX)
		return tsr_build_charge_name(c, name->text.nbytes, err);
	return tsr_fail(err, TSR_E_LIMIT,
			"%s: %.200s.param_groups: a name of %zu bytes is over the limit of %u",
			c->path, o->path, name->text.nbytes, TSR_NAME_MAX);
}

static enum tsr_status read_group(struct tsr_checkpoint *c, struct tsr_optim *o, size_t group,
				  struct tsr_err *err)
{
	const struct tsr_value *params = params_of(o, group);
	const struct tsr_value *names = tsr_value_at(group_of(o, group), "param_names");

	if (names && (names->type != TSR_VALUE_LIST || names->list.n != params->list.n))
		names = NULL;
	for (size_t i = 0; i < params->list.n; i++) {
		const struct tsr_value *id = params->list.items[i];
		struct tsr_optim_id *ret = &o->ids[o->nids++];

		if (!is_id(id))
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: %.200s.param_groups: params has an entry that is "
					"neither a number nor a name",
					c->path, o->path);
		TSR_TRY(check_length(c, o, id, err));
		*ret = (struct tsr_optim_id){ .id = id, .group = group, .array = SIZE_MAX };
		if (names)
			TSR_TRY(check_length(c, o, names->list.items[i], err));
		if (names && names->list.items[i]->type == TSR_VALUE_STRING)
			ret->name = names->list.items[i]->text.bytes;
		else if (id->type == TSR_VALUE_STRING)
			ret->name = id->text.bytes;
	}
	return TSR_OK;
}

/* An id for a message. */
static void id_text(const struct tsr_value *id, char *out, size_t room)
{
	int64_t number;

	if (tsr_value_get_i64(id, &number))
		snprintf(out, room, "%lld", (long long)number);
	else
		snprintf(out, room, "%.100s", id->type == TSR_VALUE_STRING ? id->text.bytes : "?");
}

static struct tsr_optim_id *find_id(struct tsr_optim_id *const *sorted, size_t n,
				    const struct tsr_value *key)
{
	const struct tsr_optim_id wanted = { .id = key }, *at = &wanted;
	struct tsr_optim_id *const *found = NULL;

	if (is_id(key) && n)
		found = bsearch(&at, sorted, n, sizeof(struct tsr_optim_id *), by_id);
	return found ? *found : NULL;
}

/* Number 3 for text "3": torch.distributed.checkpoint makes text of the keys of mappings. */
static const struct tsr_value *number_of(struct tsr_checkpoint *c, const struct tsr_value *key)
{
	const bool digits = key->type == TSR_VALUE_STRING && key->text.nbytes > 0 &&
			    key->text.nbytes < 19 &&
			    strspn(key->text.bytes, "0123456789") == key->text.nbytes;

	return digits ? tsr_value_int(c->arena, strtoll(key->text.bytes, NULL, 10)) : NULL;
}

/* Whether a group's momenta are made orthogonal: as PyTorch, Moonlight and DeepSpeed say it. */
static bool is_muon(const struct tsr_value *group)
{
	const struct tsr_value *flag = tsr_value_at(group, "use_muon");

	if (flag)
		return flag->type == TSR_VALUE_BOOL && flag->boolean;
	return tsr_value_at(group, "ns_steps") || tsr_value_at(group, "ns_coefficients");
}

/* Give each entry of `state` to its id. */
static enum tsr_status hand_out(struct tsr_checkpoint *c, struct tsr_optim *o,
				struct tsr_optim_id *const *sorted, struct tsr_err *err)
{
	const struct tsr_value *state = tsr_value_mapping(o->state);
	char text[120];

	for (size_t i = 1; i < o->nids; i++) {
		id_text(sorted[i]->id, text, sizeof(text));
		if (tsr_value_compare_texts(sorted[i - 1]->id, sorted[i]->id) == 0)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: %.200s.param_groups: parameter %s is listed twice",
					c->path, o->path, text);
	}
	for (size_t i = 0; i + 1 < state->list.n; i += 2) {
		const struct tsr_value *key = state->list.items[i], *number;
		struct tsr_optim_id *found = find_id(sorted, o->nids, key);

		number = found ? NULL : number_of(c, key);
		found = number ? find_id(sorted, o->nids, number) : found;
		/* What an optimizer keeps besides, as MADGRAD its "k"; it is named by its keys. */
		if (!found)
			continue;
		found->state = state->list.items[i + 1];
		found->array = find_shaped(found->state);
		if (found->array != SIZE_MAX && is_muon(group_of(o, found->group)))
			c->arrays[found->array].orthogonal = true;
	}
	return TSR_OK;
}

enum tsr_status tsr_optim_read(struct tsr_checkpoint *c, const struct tsr_value *v,
			       const char *path, const char *prefix, struct tsr_optim *ret,
			       struct tsr_err *err)
{
	struct tsr_optim o = { .path = path,
			       .prefix = prefix,
			       .state = tsr_value_at(v, "state"),
			       .groups = tsr_value_at(v, "param_groups") };
	TSR_OWNED(free) struct tsr_optim_id **sorted = NULL;
	size_t n = 0;

	for (size_t i = 0; i < o.groups->list.n; i++)
		n += params_of(&o, i)->list.n;
	TSR_TRY(TSR_ARENA_NEW(&o.ids, n, c->arena, tsr_build_nomem(c, err)));
	for (size_t i = 0; i < o.groups->list.n; i++)
		TSR_TRY(read_group(c, &o, i, err));
	TSR_TRY(TSR_NEW(&sorted, o.nids + 1, err, c->path));
	for (size_t i = 0; i < o.nids; i++)
		sorted[i] = &o.ids[i];
	if (o.nids)
		qsort(sorted, o.nids, sizeof(struct tsr_optim_id *), by_id);
	TSR_TRY(hand_out(c, &o, sorted, err));
	*ret = o;
	return TSR_OK;
}

/* --- Joining ---------------------------------------------------------------------------------- */

/* An optimizer that is being joined to the parameters of a model. */
struct joining {
	struct tsr_checkpoint *c;
	struct tsr_optim *o;
	const struct tsr_param *params; /* of the model */
	size_t nparams;
	bool ordered; /* whether they come in the order of the model */
	struct tsr_err *err;
};

/* A parameter of the model, or one that an optimizer numbers, to be sorted by shape. */
struct shaped {
	const struct tsr_array *array;
	size_t order; /* in the model, or among the ids */
};

static int compare_shapes(const struct tsr_array *a, const struct tsr_array *b)
{
	return tsr_shape_compare(a->rank, a->shape, b->rank, b->shape);
}

TSR_COMPARE_BY(by_shape, struct shaped, compare_shapes(a->array, b->array),
	       TSR_ORDER(a->order, b->order))

/* Note whether some state has a shape that no parameter has. */
static enum tsr_status find_reduced(const struct joining *j)
{
	struct shaped *model;
	struct tsr_optim *o = j->o;

	TSR_TRY(TSR_NEW(&model, j->nparams + 1, j->err, j->c->path));
	for (size_t i = 0; i < j->nparams; i++)
		model[i].array = &j->c->arrays[j->params[i].array];
	qsort(model, j->nparams, sizeof(*model), by_shape);
	for (size_t i = 0; i < o->nids && !o->reduced; i++) {
		const size_t array = o->ids[i].array;
		const struct shaped state = { array == SIZE_MAX ? NULL : &j->c->arrays[array], 0 };

		o->reduced = state.array &&
			     !bsearch(&state, model, j->nparams, sizeof(*model), by_shape);
	}
	free(model);
	return TSR_OK;
}

static enum tsr_status ambiguous(const struct joining *j, const struct tsr_array *a, size_t nids,
				 size_t nparams)
{
	return tsr_fail_hint(
		j->err, TSR_E_UNSUPPORTED, TSR_HINT_PARAMS,
		"%s: %.200s: ambiguous: %zu numbered states of shape %s for %zu tensors of the "
		"model with that shape, which names and order do not settle",
		j->c->path, j->o->path, nids, tsr_shape_words(a->rank, a->shape).text, nparams);
}

/* One group over all of the model's parameters: then positions are the model's. */
static bool join_by_position(const struct joining *j)
{
	struct tsr_optim *o = j->o;

	if (o->groups->list.n != 1 || o->nids != j->nparams)
		return false;
	for (size_t i = 0; i < o->nids; i++) {
		if (!tsr_optim_can_have(j->c, o, &o->ids[i], j->params[i].array))
			return false;
	}
	for (size_t i = 0; i < o->nids; i++)
		o->ids[i].name = j->params[i].name;
	return true;
}

/*
 * One shape: each group follows the order of the model, so if all states of the shape are in one
 * group and there are as many as parameters, their order is the model's.  @places: per id, one more than
 * the place of its parameter in the model.
 */
static enum tsr_status join_shape(const struct joining *j, const struct shaped *ids, size_t nids,
				  const struct shaped *model, size_t nmodel, size_t *places)
{
	struct tsr_optim_id *all = j->o->ids;

	for (size_t i = 0; i < nids; i++) {
		if (j->o->reduced || nids != nmodel || (nids > 1 && !j->ordered) ||
		    all[ids[i].order].group != all[ids[0].order].group)
			return ambiguous(j, ids->array, nids, nmodel);
	}
	for (size_t i = 0; i < nids; i++) {
		all[ids[i].order].name = j->params[model[i].order].name;
		places[ids[i].order] = model[i].order + 1;
	}
	return TSR_OK;
}

/* The first id whose parameter is before that of one before it in its group; if none is, as many as ids. */
static size_t find_disorder(const struct tsr_optim *o, const size_t *places)
{
	size_t group = SIZE_MAX, last = 0;

	for (size_t i = 0; i < o->nids; i++) {
		if (o->ids[i].group != group)
			last = 0;
		group = o->ids[i].group;
		if (!places[i])
			continue;
		if (places[i] < last)
			return i;
		last = places[i];
	}
	return o->nids;
}

static enum tsr_status join_by_shape(const struct joining *j)
{
	const struct tsr_optim *o = j->o;
	const size_t nparams = j->nparams;
	TSR_OWNED(free) struct shaped *ids = calloc(o->nids + nparams + 1, sizeof(*ids));
	TSR_OWNED(free) size_t *places = calloc(o->nids + 1, sizeof(*places));
	const struct tsr_array *alike = NULL; /* one of several parameters of one shape */
	struct shaped *model = ids + o->nids;
	size_t nids = 0, nalike = 0, at = 0;

	if (!ids || !places)
		return tsr_fail_nomem(j->err, j->c->path);
	for (size_t i = 0; i < o->nids; i++) {
		if (o->ids[i].array != SIZE_MAX && !o->ids[i].name)
			ids[nids++] = (struct shaped){ &j->c->arrays[o->ids[i].array], i };
	}
	for (size_t i = 0; i < nparams; i++)
		model[i] = (struct shaped){ &j->c->arrays[j->params[i].array], i };
	if (nids)
		qsort(ids, nids, sizeof(*ids), by_shape);
	if (nparams)
		qsort(model, nparams, sizeof(*model), by_shape);
	for (size_t i = 0; i < nids;) {
		size_t n = 1, nmodel = 0;

		while (i + n < nids && compare_shapes(ids[i].array, ids[i + n].array) == 0)
			n++;
		while (at < nparams && compare_shapes(model[at].array, ids[i].array) < 0)
			at++;
		while (at + nmodel < nparams &&
		       compare_shapes(model[at + nmodel].array, ids[i].array) == 0)
			nmodel++;
		TSR_TRY(join_shape(j, ids + i, n, model + at, nmodel, places));
		if (n > 1) {
			alike = ids[i].array;
			nalike = n;
		}
		i += n;
	}
	/*
	 * Where order has decided, one group of all must have that of the model.  Several have it as a rule
	 * even where the model's tensors were sorted by name since.
	 */
	if (alike && o->groups->list.n == 1 && find_disorder(o, places) < o->nids)
		return ambiguous(j, alike, nalike, nalike);
	return TSR_OK;
}

static void forget_names(struct tsr_optim *o)
{
	for (size_t i = 0; i < o->nids; i++)
		o->ids[i].name = NULL;
}

/* By shape among the parameters that are no buffers by their names. */
static enum tsr_status join_without_buffers(const struct joining *j)
{
	TSR_OWNED(free) struct tsr_param *trained = NULL;
	struct joining fewer = *j;

	TSR_TRY(TSR_NEW(&trained, j->nparams + 1, j->err, j->c->path));
	fewer.params = trained;
	fewer.nparams = 0;
	for (size_t i = 0; i < j->nparams; i++) {
		if (!tsr_alias_is_buffer(j->params[i].name))
			trained[fewer.nparams++] = j->params[i];
	}
	return join_by_shape(&fewer);
}

/* By shape, or where shapes alone are ambiguous, by rules. */
static enum tsr_status join_by_rules(const struct joining *j, size_t unnamed)
{
	struct tsr_err ambiguity = { 0 };
	struct joining shapes = *j;
	enum tsr_status status;
	bool proved = false;

	shapes.err = &ambiguity;
	status = join_by_shape(&shapes);
	/* The optimizer's own names are not to be overruled. */
	if (status == TSR_E_UNSUPPORTED && unnamed == j->o->nids) {
		forget_names(j->o);
		status = join_without_buffers(&shapes);
		if (status == TSR_OK)
			return tsr_build_remark(
				j->c, j->err,
				"%s: %.200s: its numbers fit the names of parameters "
				"in one way only: by shape and order, without buffers",
				j->c->path, j->o->path);
	}
	if (status == TSR_E_UNSUPPORTED && unnamed == j->o->nids) {
		forget_names(j->o);
		TSR_TRY(tsr_order_prove(j->c, j->o, j->params, j->nparams, j->ordered, &proved,
					j->err));
	}
	if (status == TSR_OK || proved)
		return TSR_OK;
	*j->err = ambiguity;
	return status;
}

/* --- Names from the caller --------------------------------------------------------------------- */

/* A parameter's name must be one of the model's, with the shape of the state. */
static enum tsr_status check_name(const struct joining *j, const struct tsr_optim_id *id,
				  const struct tsr_named *found, bool given)
{
	const struct tsr_array *state, *param;

	if (!found && given)
		return tsr_fail(j->err, TSR_E_USAGE,
				"%s: %.200s: found parameter %.200s in the names that were given, "
				"expected one of the model's",
				j->c->path, j->o->path, id->name);
	if (!found || tsr_optim_can_have(j->c, j->o, id, found->index))
		return TSR_OK;
	state = &j->c->arrays[id->array];
	param = &j->c->arrays[found->index];
	return tsr_fail(j->err, TSR_E_FORMAT,
			"%s: %.200s: state of parameter %.200s: found shape %s, expected %s",
			j->c->path, j->o->path, id->name,
			tsr_shape_words(state->rank, state->shape).text,
			tsr_shape_words(param->rank, param->shape).text);
}

static enum tsr_status check_names(const struct joining *j, bool given)
{
	const size_t n = j->nparams;
	TSR_OWNED(free) struct tsr_named *sorted = NULL;

	TSR_TRY(TSR_NEW(&sorted, n + 1, j->err, j->c->path));
	for (size_t i = 0; i < n; i++)
		sorted[i] = (struct tsr_named){ j->params[i].name, j->params[i].array };
	tsr_named_sort(sorted, n);
	for (size_t i = 0; i < j->o->nids; i++) {
		const struct tsr_optim_id *id = &j->o->ids[i];
		const struct tsr_named *found = id->name ? tsr_named_find(sorted, n, id->name)
							 : NULL;

		if (id->name)
			TSR_TRY(check_name(j, id, found, given));
	}
	return TSR_OK;
}

enum tsr_status tsr_optim_join(struct tsr_checkpoint *c, struct tsr_optim *o,
			       const struct tsr_param *params, size_t nparams, bool ordered,
			       const char *const *given, size_t ngiven, struct tsr_err *err)
{
	const struct joining j = { c, o, params, nparams, ordered, err };
	bool joined = false;
	size_t unnamed = 0;

	if (given && ngiven != o->nids)
		return tsr_fail(err, TSR_E_USAGE,
				"%s: %.200s: found %zu names of parameters, expected %zu as the "
				"optimizer numbers",
				c->path, o->path, ngiven, o->nids);
	for (size_t i = 0; i < o->nids; i++) {
		if (given)
			o->ids[i].name = tsr_arena_string(c->arena, given[i]);
		if (given && !o->ids[i].name)
			return tsr_build_nomem(c, err);
		unnamed += !o->ids[i].name;
	}
	if (!nparams)
		return TSR_OK;
	TSR_TRY(find_reduced(&j));
	if (!unnamed)
		return check_names(&j, given != NULL);
	if (unnamed == o->nids)
		TSR_TRY(tsr_gefen_join(c, o, params, nparams, ordered, &joined, err));
	if (joined || (ordered && join_by_position(&j)))
		return TSR_OK;
	return join_by_rules(&j, unnamed);
}
