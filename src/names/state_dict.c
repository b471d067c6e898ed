/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for the tensors of a tree: what a model's own state_dict() calls them, NAME.FIELD for the
 * optimizer's state of parameter NAME, and the path of keys for everything else.
 */
#include "names/state_dict.h"

#include "base/grow.h"
#include "text/named.h"
#include "ckpt/build.h"
#include "ckpt/checkpoint_model.h"
#include "base/utf8.h"
#include "names/import/import_parts.h"
#include "names/key_path.h"
#include "names/model_tree.h"
#include "names/optimizer_ids.h"
#include "names/roles.h"

/* Marks values whose tensors have names. */
#define MARK_NAMED 1u

struct naming {
	struct tsr_checkpoint *c;
	const struct tsr_open_options *options;
	const char **name, **path; /* per array: its name, and the keys that lead to it */
	size_t nparams;
	struct tsr_param *params; /* of the model */
	bool unordered; /* some of them came with names, in an order that is not the model's */
	struct tsr_arena *arena;
	size_t noptims; /* room for a power of two */
	struct tsr_optim *optims;
	size_t nshared; /* names that stand for a parameter of several optimizers, sorted */
	struct tsr_named *shared;
	struct tsr_key_path *at; /* to the value being walked */
	struct tsr_err *err;
};

/* --- Paths ------------------------------------------------------------------------------------ */

/* The text of the path from byte @from on, in the arena. */
static enum tsr_status copy_path(struct naming *n, size_t from, const char **ret)
{
	const struct tsr_text *t = &n->at->text;

	if (from && from < t->nbytes && t->bytes[from] == '.')
		from++;
	TSR_TRY(tsr_build_charge_name(n->c, t->nbytes - from, n->err));
	*ret = tsr_arena_copy(n->c->arena, t->bytes + from, t->nbytes - from);
	return *ret ? TSR_OK : tsr_build_nomem(n->c, n->err);
}

/* --- The walk --------------------------------------------------------------------------------- */

/* A tensor gets the first name by which it is found. */
static enum tsr_status name_tensor(struct naming *n, size_t array, size_t dropped, bool param)
{
	const struct tsr_text *path = &n->at->text;
	size_t from;

	if (n->name[array])
		return TSR_OK;
	TSR_TRY(tsr_key_path_text(n->at, dropped, &from, n->c->path, n->err));
	if (!path->nbytes && n->at->n)
		return tsr_fail(n->err, TSR_E_UNSUPPORTED,
				"%s: found a tensor with an empty key, expected one with a name",
				n->c->path);
	n->path[array] = "tensor";
	if (path->nbytes)
		TSR_TRY(copy_path(n, 0, &n->path[array]));
	n->name[array] = n->path[array];
	if (path->nbytes > from && from)
		TSR_TRY(copy_path(n, from, &n->name[array]));
	if (param && tsr_names_is_floating(n->c->arrays[array].dtype)) {
		n->params[n->nparams++] = (struct tsr_param){ n->name[array], array };
		n->unordered = n->unordered || n->c->arrays[array].own_name;
	}
	return TSR_OK;
}

static enum tsr_status add_optim(struct naming *n, const struct tsr_value *v)
{
	const char *path;

	TSR_TRY(tsr_key_path_text(n->at, 0, NULL, n->c->path, n->err));
	TSR_TRY(copy_path(n, 0, &path));
	TSR_TRY(TSR_ARENA_GROW(&n->optims, n->noptims, n->arena, n->err, n->c->path));
	if (!n->options->as_stored)
		TSR_TRY(tsr_import_torchao_shapes(n->c, v, n->err));
	TSR_TRY(tsr_optim_read(n->c, v, *path ? path : "optimizer", path, &n->optims[n->noptims],
			       n->err));
	tsr_optim_take_eps(&n->optims[n->noptims], &n->c->eps);
	n->noptims++;
	return TSR_OK;
}

static enum tsr_status walk(struct naming *n, struct tsr_value *v, size_t dropped, bool param);

/* "state.NAME.exp_avg": how torch.distributed flattens the state_dict() of an optimizer. */
static bool is_flattened_state(const struct tsr_value *key)
{
	return key->type == TSR_VALUE_STRING && strncmp(key->text.bytes, "state.", 6) == 0 &&
	       key->text.nbytes > 6;
}

static enum tsr_status walk_mapping(struct naming *n, const struct tsr_value *mapping,
				    const struct tsr_value *skipped, size_t dropped, bool param)
{
	const size_t depth = n->at->n, len = strlen("state");

	for (size_t i = 0; i + 1 < mapping->list.n; i += 2) {
		const struct tsr_value *key = mapping->list.items[i];
		struct tsr_value *value = mapping->list.items[i + 1];
		const bool state = !param && is_flattened_state(key) &&
				   value->type == TSR_VALUE_TENSOR;

		if (value == skipped)
			continue;
		if (state) {
			tsr_key_path_push_bytes(n->at, key->text.bytes, len);
			tsr_key_path_push_bytes(n->at, key->text.bytes + len + 1,
						key->text.nbytes - len - 1);
		} else {
			tsr_key_path_push(n->at, key, i / 2);
		}
		TSR_TRY(walk(n, value, state ? depth + 1 : dropped, param));
		n->at->n = depth;
	}
	return TSR_OK;
}

/* @dropped: how many keys of the path names do not have; @param: whether this is the model. */
static enum tsr_status walk(struct naming *n, struct tsr_value *v, size_t dropped, bool param)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);
	const size_t depth = n->at->n;

	if (v->type == TSR_VALUE_TENSOR) {
		TSR_TRY(name_tensor(n, v->tensor.array, dropped, param));
		mapping = v->tensor.attributes ? tsr_value_mapping(v->tensor.attributes) : NULL;
		return mapping ? walk_mapping(n, mapping, NULL, dropped, false) : TSR_OK;
	}
	if (v->mark == MARK_NAMED)
		return TSR_OK;
	v->mark = MARK_NAMED;
	if (mapping && !param && tsr_optim_is(v)) {
		TSR_TRY(add_optim(n, v));
		return walk_mapping(n, mapping, tsr_value_at(v, "state"), dropped, param);
	}
	if (mapping)
		return walk_mapping(n, mapping, NULL, dropped, param);
	if (v->type != TSR_VALUE_LIST && v->type != TSR_VALUE_TUPLE)
		return TSR_OK;
	for (size_t i = 0; i < v->list.n; i++) {
		tsr_key_path_push_index(n->at, i);
		TSR_TRY(walk(n, v->list.items[i], dropped, param));
		n->at->n = depth;
	}
	return TSR_OK;
}

/* --- The tree --------------------------------------------------------------------------------- */

/* The model first, so that its names win; then everything else. */
static enum tsr_status name_tree(struct naming *n, struct tsr_value *root)
{
	struct tsr_value *inner = root, **wrapper, *model;
	const struct tsr_value *mapping;

	n->at->n = 0;
	while ((wrapper = tsr_model_wrapper(inner)) != NULL) {
		tsr_key_path_push(n->at, wrapper[0], 0);
		inner = wrapper[1];
	}
	model = tsr_state_dict_model(inner);
	if (model == inner)
		return walk(n, root, 0, true);
	mapping = tsr_value_mapping(inner);
	for (size_t i = 0; model && i + 1 < mapping->list.n; i += 2) {
		if (mapping->list.items[i + 1] != model)
			continue;
		tsr_key_path_push(n->at, mapping->list.items[i], i / 2);
		TSR_TRY(walk(n, model, n->at->n, true));
		break;
	}
	n->at->n = 0;
	return walk(n, root, 0, false);
}

/* --- Optimizers ------------------------------------------------------------------------------- */

/* List the names of parameters of which more than one optimizer has a state. */
static enum tsr_status list_shared(struct naming *n)
{
	size_t nnames = 0, nshared = 0;

	for (size_t i = 0; i < n->noptims; i++)
		nnames += n->optims[i].nids;
	TSR_TRY(TSR_TAKE(&n->shared, nnames + 1, n->arena, n->err, n->c->path));
	nnames = 0;
	for (size_t i = 0; i < n->noptims; i++) {
		for (size_t k = 0; k < n->optims[i].nids; k++) {
			const struct tsr_optim_id *id = &n->optims[i].ids[k];

			if (id->name && id->state)
				n->shared[nnames++] = (struct tsr_named){ id->name, i };
		}
	}
	tsr_named_sort(n->shared, nnames);
	for (size_t i = 1; i < nnames; i++) {
		const struct tsr_named *a = &n->shared[i - 1], *b = &n->shared[i];

		if (a->index != b->index && strcmp(a->name, b->name) == 0)
			n->shared[nshared++] = *a;
	}
	n->nshared = nshared;
	return TSR_OK;
}

static bool is_shared(const struct naming *n, const char *name)
{
	return n->nshared && tsr_named_find(n->shared, n->nshared, name);
}

/* Start the path anew, at the state of an optimizer. */
static void go_to_state(struct naming *n, const struct tsr_optim *o)
{
	n->at->n = 0;
	if (*o->prefix)
		tsr_key_path_push_bytes(n->at, o->prefix, strlen(o->prefix));
	tsr_key_path_push_bytes(n->at, "state", strlen("state"));
}

static enum tsr_status name_states(struct naming *n, const struct tsr_optim *o)
{
	size_t dropped;

	for (size_t i = 0; i < o->nids; i++) {
		const struct tsr_optim_id *id = &o->ids[i];

		if (!id->state)
			continue;
		if (id->name && !tsr_utf8_is_string(id->name, strlen(id->name)))
			return tsr_fail(n->err, TSR_E_UNSUPPORTED,
					"%s: %.200s: a parameter's name is not text", n->c->path,
					o->path);
		go_to_state(n, o);
		dropped = id->name && !is_shared(n, id->name) ? n->at->n : 0;
		if (id->name)
			tsr_key_path_push_bytes(n->at, id->name, strlen(id->name));
		else
			tsr_key_path_push(n->at, id->id, i);
		TSR_TRY(walk(n, id->state, dropped, false));
		if (!n->options->as_stored)
			TSR_TRY(tsr_import_flashoptim_type(n->c, o, id, n->err));
	}
	/* What belongs to no id is named by its path. */
	go_to_state(n, o);
	return walk_mapping(n, tsr_value_mapping(o->state), NULL, 0, false);
}

/* What has another's name all the same gets a number: keys with dots read like those of deeper dicts. */
static enum tsr_status number_twins(struct naming *n, struct tsr_named *sorted)
{
	struct tsr_array *arrays = n->c->arrays;
	size_t twin = 1;

	for (size_t i = 0; i < n->c->narrays; i++)
		sorted[i] = (struct tsr_named){ arrays[i].name, i };
	tsr_named_sort(sorted, n->c->narrays);
	for (size_t i = 1; i < n->c->narrays; i++) {
		const size_t room = strlen(sorted[i].name) + 24;
		const char *name;

		twin = strcmp(sorted[i].name, sorted[i - 1].name) == 0 ? twin + 1 : 1;
		if (twin == 1 || !n->path[sorted[i].index])
			continue;
		TSR_TRY(tsr_build_charge_name(n->c, room, n->err));
		name = tsr_arena_printf(n->c->arena, "%s#%zu", sorted[i].name, twin);
		if (!name)
			return tsr_build_nomem(n->c, n->err);
		arrays[sorted[i].index].name = name;
	}
	return TSR_OK;
}

/* Where two tensors would have one name, all but the first are called by their path. */
static enum tsr_status settle_names(struct naming *n)
{
	struct tsr_checkpoint *c = n->c;
	TSR_OWNED(free) struct tsr_named *sorted = NULL;
	size_t last = SIZE_MAX;

	TSR_TRY(TSR_NEW(&sorted, c->narrays + 1, n->err, c->path));
	for (size_t i = 0; i < c->narrays; i++) {
		n->name[i] = n->name[i] ? n->name[i] : c->arrays[i].name;
		sorted[i] = (struct tsr_named){ n->name[i], i };
	}
	tsr_named_sort(sorted, c->narrays);
	for (size_t i = 0; i < c->narrays; i++) {
		const size_t a = sorted[i].index;
		const bool again = last != SIZE_MAX && strcmp(n->name[a], n->name[last]) == 0;

		c->arrays[a].name = again && n->path[a] ? n->path[a] : n->name[a];
		/* A name that is another's path: then the first gives way. */
		if (again && n->path[last] && strcmp(c->arrays[a].name, n->name[last]) == 0)
			c->arrays[last].name = n->path[last];
		last = again ? last : a;
	}
	return number_twins(n, sorted);
}

/* A model whose arrays came with names, in an order that is not the model's. */
static void list_named(struct naming *n)
{
	for (size_t i = 0; i < n->c->narrays; i++) {
		if (n->c->arrays[i].own_name && tsr_names_is_floating(n->c->arrays[i].dtype))
			n->params[n->nparams++] = (struct tsr_param){ n->c->arrays[i].name, i };
	}
}

/* Keep the parameters that the caller's order has, in that order. */
static enum tsr_status put_in_order(struct naming *n)
{
	const struct tsr_open_options *o = n->options;
	TSR_OWNED(free) struct tsr_named *by_name = calloc(n->nparams + 1, sizeof(*by_name));
	TSR_OWNED(free) struct tsr_param *ordered = calloc(n->nparams + 1, sizeof(*ordered));
	size_t kept = 0;

	if (!by_name || !ordered)
		return tsr_fail_nomem(n->err, n->c->path);
	for (size_t i = 0; i < n->nparams; i++)
		by_name[i] = (struct tsr_named){ n->params[i].name, i };
	tsr_named_sort(by_name, n->nparams);
	for (size_t i = 0; i < o->norder; i++) {
		const struct tsr_named *found = tsr_named_find(by_name, n->nparams, o->order[i]);

		if (found && kept < n->nparams)
			ordered[kept++] = n->params[found->index];
	}
	if (n->nparams && !kept)
		return tsr_fail(n->err, TSR_E_USAGE,
				"%s: none of the %zu names in the order that was given is a "
				"parameter of the model",
				n->c->path, o->norder);
	memcpy(n->params, ordered, kept * sizeof(*ordered));
	n->nparams = kept;
	return TSR_OK;
}

/* A directory is read in any case: states whose parameters cannot be told keep their numbers. */
static enum tsr_status join_optim(struct naming *n, struct tsr_optim *o, bool ordered)
{
	TSR_OWNED(free) const char **own = NULL;
	struct tsr_err reason = { .msg = "" };
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&own, o->nids + 1, n->err, n->c->path));
	for (size_t i = 0; i < o->nids; i++)
		own[i] = o->ids[i].name;
	status = tsr_optim_join(n->c, o, n->params, n->nparams, ordered, n->options->params,
				n->options->nparams, &reason);
	if (status != TSR_OK && n->err)
		*n->err = reason;
	if (status != TSR_E_UNSUPPORTED || reason.hint != TSR_HINT_PARAMS || !n->options->numbered)
		return status;
	for (size_t i = 0; i < o->nids; i++)
		o->ids[i].name = own[i];
	return tsr_build_note(
		n->c, n->err,
		"%s: these states are called by the optimizer's numbers; a list of its "
		"parameters' names settles it",
		reason.msg);
}

static enum tsr_status name_all(struct naming *n)
{
	struct tsr_checkpoint *c = n->c;
	bool ordered;

	for (size_t i = 0; i < c->ntrees; i++)
		TSR_TRY(name_tree(n, c->trees[i]));
	ordered = n->nparams > 0 && !n->unordered;
	if (!n->nparams)
		list_named(n);
	if (n->options->order && n->noptims) {
		TSR_TRY(put_in_order(n));
		ordered = true;
	}
	for (size_t i = 0; i < n->noptims; i++) {
		TSR_TRY(join_optim(n, &n->optims[i], ordered));
	}
	if (n->noptims > 1)
		TSR_TRY(list_shared(n));
	for (size_t i = 0; i < n->noptims; i++)
		TSR_TRY(name_states(n, &n->optims[i]));
	return settle_names(n);
}

enum tsr_status tsr_state_dict_name(struct tsr_checkpoint *c,
				    const struct tsr_open_options *options, struct tsr_err *err)
{
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = NULL;
	TSR_SCOPED(tsr_key_path_free) struct tsr_key_path at = { .n = 0 };
	struct naming n = { .c = c, .options = options, .at = &at, .err = err };

	if (!c->ntrees)
		return TSR_OK;
	n.arena = arena = tsr_arena_new(SIZE_MAX);
	TSR_TRY(TSR_TAKE(&n.name, c->narrays + 1, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&n.path, c->narrays + 1, arena, err, c->path));
	TSR_TRY(TSR_TAKE(&n.params, c->narrays + 1, arena, err, c->path));
	return name_all(&n);
}
