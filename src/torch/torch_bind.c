/* SPDX-License-Identifier: Apache-2.0 */
/* From the calls in a value that make tensors to the tensors, whoever has their data. */
#include "base/fail.h"
#include "format/value_walk.h"
#include "torch/torch_archive.h"

/* The pass over a value. */
struct binding {
	struct tsr_torch_archive *a;
	tsr_torch_find_fn *find;
	void *ctx;
	struct tsr_value_walk walk;
	uint64_t keys_nbytes; /* of the dicts so far */
	size_t ndropped; /* objects */
	struct tsr_torch_numpy *numpy;
};

/* --- Tensors and parameters ------------------------------------------------------------------ */

static enum tsr_status bind_tensor(struct binding *b, struct tsr_value *v, const char *at)
{
	struct tsr_value tensor = { .type = TSR_VALUE_TENSOR, .mark = b->walk.mark };

	TSR_TRY(b->find(b->ctx, v, at, &tensor));
	*v = tensor;
	return TSR_OK;
}

/* A tensor with attributes, which torch.nn.Buffer is too. */
static enum tsr_status bind_typed(struct binding *b, struct tsr_value *v, struct tsr_value *call,
				  struct tsr_value *attributes, const char *at)
{
	TSR_TRY(bind_tensor(b, call, at));
	v->type = TSR_VALUE_TENSOR;
	v->tensor = call->tensor;
	v->tensor.attributes = attributes->list.n ? attributes : NULL;
	return TSR_OK;
}

/* A subclass around a tensor, or around another subclass, has the array of that one. */
static enum tsr_status bind_wrapper(struct binding *b, struct tsr_value *v, struct tsr_value *inner,
				    const struct tsr_value *tensor, const char *at)
{
	struct tsr_value within, *part;

	if (tsr_torch_is_tensor(inner))
		TSR_TRY(bind_tensor(b, inner, at));
	else if (tsr_torch_is_wrapper(inner, &part, &within))
		TSR_TRY(bind_wrapper(b, inner, part, &within, at));
	if (inner->type != TSR_VALUE_TENSOR)
		return tsr_torch_fail(b->a, TSR_E_UNSUPPORTED, at,
				      "found a tensor subclass without a plain tensor in it");
	v->type = TSR_VALUE_TENSOR;
	v->tensor = tensor->tensor;
	v->tensor.array = inner->tensor.array;
	return tsr_torch_move_to_cpu(b->a->c->arena, v) ? TSR_OK
							: tsr_build_nomem(b->a->c, b->a->err);
}

static bool is_parameter(const struct tsr_value *v)
{
	return tsr_value_is_call(v, "torch._utils", "_rebuild_parameter") ||
	       tsr_value_is_call(v, "torch._utils", "_rebuild_parameter_with_state");
}

/* The arguments are tensor, requires_grad, hooks, and for the second kind a state. */
static enum tsr_status bind_parameter(struct binding *b, struct tsr_value *v, const char *at)
{
	const bool stateful = strcmp(v->call.callee->global.name, "_rebuild_parameter") != 0;
	struct tsr_value *const *args = v->call.args->list.items;
	const size_t want = stateful ? 4 : 3;
	struct tsr_value *attributes;
	bool requires_grad;

	if (v->call.args->list.n != want || v->call.is_new || v->call.state || v->call.items ||
	    args[1]->type != TSR_VALUE_BOOL || !tsr_torch_no_hooks(args[2]))
		return tsr_torch_fail(b->a, TSR_E_FORMAT, at,
				      "found a parameter of another form, expected a tensor, a "
				      "bool and no hooks");
	if (stateful && args[3]->type != TSR_VALUE_DICT)
		return tsr_torch_fail(b->a, TSR_E_UNSUPPORTED, at,
				      "found a parameter with slots, expected attributes only");
	if (tsr_torch_is_tensor(args[0]))
		TSR_TRY(bind_tensor(b, args[0], at));
	if (args[0]->type == TSR_VALUE_CALL)
		return tsr_torch_refuse(b->a, at, args[0]);
	if (args[0]->type != TSR_VALUE_TENSOR || args[0]->tensor.parameter ||
	    args[0]->tensor.attributes)
		return tsr_torch_fail(b->a, TSR_E_FORMAT, at,
				      "found a parameter without a tensor in it");
	requires_grad = args[1]->boolean;
	attributes = stateful && args[3]->list.n ? args[3] : NULL;
	v->type = TSR_VALUE_TENSOR;
	v->tensor = args[0]->tensor;
	v->tensor.requires_grad = requires_grad;
	v->tensor.parameter = true;
	v->tensor.attributes = attributes;
	return TSR_OK;
}

/* --- Everything else ------------------------------------------------------------------------ */

/*
 * A tensor in a key, or in the arguments of what makes a plain value, would be lost: no reader looks
 * there.
 */
static enum tsr_status check_place(const struct binding *b, const char *at)
{
	const struct tsr_value_walk *w = &b->walk;

	for (size_t i = 0; i + 1 < w->n; i++) {
		const struct tsr_value *v = w->path[i].v;
		const size_t child = w->path[i].next - 1;

		if (v->type == TSR_VALUE_CALL && v->call.args == w->path[i + 1].v &&
		    v->call.callee->type == TSR_VALUE_GLOBAL &&
		    tsr_torch_is_harmless(v->call.callee) && !tsr_value_mapping(v))
			return tsr_torch_fail(b->a, TSR_E_UNSUPPORTED, at,
					      "found a tensor among the arguments of %s.%s, "
					      "expected one in a list, tuple or dict",
					      v->call.callee->global.module,
					      v->call.callee->global.name);
		if (v->type == TSR_VALUE_DICT && child % 2 == 0)
			return tsr_torch_fail(b->a, TSR_E_UNSUPPORTED, at,
					      "found a tensor in the key of a dict");
	}
	return TSR_OK;
}

static void remember_numpy(struct binding *b, const struct tsr_value *callee, const char *at)
{
	if (strncmp(callee->global.module, "numpy.", 6) != 0)
		return;
	if (!b->numpy->n++)
		memcpy(b->numpy->at, at, strlen(at) + 1);
}

/* How many objects that are left out get a note of their own. */
#define DROPPED_NOTES 10u

/* None in the place of an object; keys must stay apart. */
static enum tsr_status drop(struct binding *b, struct tsr_value *v, const char *at)
{
	const struct tsr_value_walk *w = &b->walk;
	char text[TSR_VALUE_DESCRIBED];

	if (w->n > 1 && w->path[w->n - 2].v->type == TSR_VALUE_DICT && w->path[w->n - 2].next % 2)
		return tsr_torch_fail(b->a, TSR_E_UNSUPPORTED, at,
				      "found %s as a key, which cannot be left out",
				      tsr_value_describe(v, text));
	if (b->ndropped++ < DROPPED_NOTES)
		TSR_TRY(tsr_build_note(b->a->c, b->a->err, "%.200s: %s: %s was left out",
				       b->a->where, *at ? at : "the root",
				       tsr_value_describe(v, text)));
	v->type = TSR_VALUE_NONE;
	return TSR_OK;
}

/* A class, a function or a call. */
static enum tsr_status bind_global(struct binding *b, struct tsr_value *v, const char *at)
{
	switch (tsr_torch_judge(b->a->c, v)) {
	case TSR_TORCH_REFUSE:
		break;
	case TSR_TORCH_DROP:
		return drop(b, v, at);
	case TSR_TORCH_KEEP:
		if (v->type == TSR_VALUE_CALL && v->call.callee->type == TSR_VALUE_GLOBAL)
			remember_numpy(b, v->call.callee, at);
		return TSR_OK;
	}
	return tsr_torch_refuse(b->a, at, v);
}

/* Python would keep the last of two values, other readers the first. */
static enum tsr_status check_dict(struct binding *b, const struct tsr_value *v)
{
	char at[TSR_TORCH_PATH_NBYTES], text[TSR_VALUE_DESCRIBED];
	const struct tsr_value *twin;

	b->keys_nbytes += tsr_value_keys_nbytes(v);
	if (b->keys_nbytes > TSR_TORCH_KEYS_MAX)
		return tsr_fail(b->a->err, TSR_E_LIMIT,
				"%s: the keys of its dicts are over the limit of %" PRIu64 " bytes",
				b->a->where, TSR_TORCH_KEYS_MAX);
	if (!tsr_value_find_twin(v, &twin))
		return tsr_fail_nomem(b->a->err, b->a->where);
	if (!twin)
		return TSR_OK;
	tsr_value_walk_path(&b->walk, at, sizeof(at));
	return tsr_torch_fail(b->a, TSR_E_FORMAT, at, "found key %s twice in a dict",
			      tsr_value_describe(twin, text));
}

/* What is a tensor, but more than a plain one. */
static enum tsr_status bind_subclass(struct binding *b, struct tsr_value *v, const char *at)
{
	struct tsr_value tensor, *part;

	TSR_TRY(check_place(b, at));
	if (tsr_torch_is_typed(v, &tensor, &part))
		return bind_typed(b, v, &tensor, part, at);
	if (tsr_torch_is_wrapper(v, &part, &tensor))
		return bind_wrapper(b, v, part, &tensor, at);
	return tsr_torch_refuse(b->a, at, v);
}

static enum tsr_status bind_value(struct binding *b, struct tsr_value *v)
{
	char at[TSR_TORCH_PATH_NBYTES];

	if (v->type == TSR_VALUE_DICT)
		return check_dict(b, v);
	if (v->type != TSR_VALUE_CALL && v->type != TSR_VALUE_GLOBAL &&
	    v->type != TSR_VALUE_PERSISTENT)
		return TSR_OK;
	tsr_value_walk_path(&b->walk, at, sizeof(at));
	if (v->type == TSR_VALUE_PERSISTENT)
		return tsr_torch_fail(b->a, TSR_E_UNSUPPORTED, at,
				      "found a storage that is not in a tensor, expected tensors");
	if (tsr_value_is_call(v, "torch._tensor", "_rebuild_from_type_v2"))
		return bind_subclass(b, v, at);
	if (!tsr_torch_is_tensor(v) && !is_parameter(v))
		return bind_global(b, v, at);
	TSR_TRY(check_place(b, at));
	return is_parameter(v) ? bind_parameter(b, v, at) : bind_tensor(b, v, at);
}

static enum tsr_status bind_all(struct binding *b)
{
	struct tsr_value *v;

	while ((v = tsr_value_walk_next(&b->walk)) != NULL)
		TSR_TRY(bind_value(b, v));
	if (b->ndropped <= DROPPED_NOTES)
		return TSR_OK;
	return tsr_build_note(b->a->c, b->a->err, "%.200s: %zu objects in all were left out",
			      b->a->where, b->ndropped);
}

enum tsr_status tsr_torch_bind_with(struct tsr_torch_archive *a, struct tsr_value *root,
				    tsr_torch_find_fn *find, void *ctx,
				    struct tsr_torch_numpy *numpy)
{
	TSR_OWNED(free) struct binding *b = NULL;

	TSR_TRY(TSR_NEW(&b, 1, a->err, a->where));
	b->a = a;
	b->find = find;
	b->ctx = ctx;
	b->numpy = numpy;
	b->walk.root = root;
	b->walk.mark = TSR_MARK_TORCH;
	return bind_all(b);
}
