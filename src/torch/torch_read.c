/* SPDX-License-Identifier: Apache-2.0 */
/* From the value that a pickle describes to tensors and plain values. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "text/map.h"
#include "ckpt/checkpoint_model.h"
#include "torch/torch.h"
#include "torch/torch_archive.h"
#include "format/value_walk.h"

/* The longest path in messages and provisional names. */
#define PATH_NBYTES 512u

/* --- Arrays, each view once ----------------------------------------------------------------- */

/* A view that has an array. */
struct seen {
	const struct tsr_torch_archive *archive;
	size_t array;
	size_t member;
	uint64_t first;
	const uint64_t *shape, *stride; /* the array's; NULL: contiguous */
};

/* The pass over a value. */
struct binding {
	struct tsr_torch_archive *a;
	struct tsr_value_walk walk;
	const char *prefix;
	struct tsr_map views; /* of struct seen */
	uint64_t nbytes; /* of the tensors so far */
	uint64_t keys_nbytes; /* of the dicts so far */
	size_t ndropped; /* objects */
	size_t nloose; /* views with gaps, or with elements twice */
	const char *loose; /* the name of the first */
	size_t nnumpy;
	char numpy[PATH_NBYTES]; /* where the first NumPy value stands */
};

static uint64_t hash_view(struct tsr_map *views, const struct tsr_torch_view *v)
{
	const uint64_t facts[] = { v->member, v->dtype, v->rank, v->first };
	const uint64_t hash = tsr_map_hash(views, v->shape, v->rank * sizeof(*v->shape),
					   tsr_map_hash(views, facts, sizeof(facts), 0));

	return tsr_map_hash(views, v->stride, v->rank * sizeof(*v->stride), hash);
}

static bool is_seen(const void *item, const void *key)
{
	const struct seen *s = item;
	const struct tsr_torch_view *v = key;
	const struct tsr_array *a = &s->archive->c->arrays[s->array];
	const size_t nbytes = v->rank * sizeof(*v->shape);

	return s->member == v->member && s->first == v->first && a->dtype == v->dtype &&
	       a->rank == v->rank && (!nbytes || memcmp(s->shape, v->shape, nbytes) == 0) &&
	       (s->stride ? !nbytes || memcmp(s->stride, v->stride, nbytes) == 0 : v->contiguous);
}

static enum tsr_status add_array(struct binding *b, const struct tsr_torch_view *v, const char *at,
				 struct seen *s)
{
	struct tsr_checkpoint *c = b->a->c;
	struct tsr_array array;

	TSR_TRY(tsr_torch_array(c, v, &array, b->a->err));
	array.name = tsr_arena_printf(c->arena, "%s%s%s", b->prefix, *b->prefix && *at ? "." : "",
				      at);
	if (!array.name)
		return tsr_build_nomem(c, b->a->err);
	TSR_TRY(tsr_build_array(c, &array, &s->array, b->a->err));
	if (!v->contiguous && !array.stride && !b->nloose++)
		b->loose = array.name;
	s->archive = b->a;
	s->member = v->member;
	s->first = v->first;
	s->shape = array.shape;
	s->stride = array.layout ? array.layout->chunks->stride : NULL;
	return TSR_OK;
}

/* The array of a view: one that is there already, or a new one. */
static enum tsr_status find_array(struct binding *b, const struct tsr_torch_view *v, const char *at,
				  size_t *ret)
{
	const uint64_t hash = hash_view(&b->views, v);
	bool is_new;
	struct seen *s = tsr_map_put(&b->views, hash, v, &is_new);

	if (!s)
		return tsr_fail_nomem(b->a->err, b->a->where);
	if (is_new) {
		TSR_TRY(add_array(b, v, at, s));
		if (__builtin_add_overflow(b->nbytes, v->nbytes, &b->nbytes))
			b->nbytes = UINT64_MAX;
	}
	*ret = s->array;
	return TSR_OK;
}

/* --- Tensors and parameters ------------------------------------------------------------------ */

static enum tsr_status bind_tensor(struct binding *b, struct tsr_value *v, const char *at)
{
	struct tsr_torch_view view;
	size_t array = 0;

	TSR_TRY(tsr_torch_view(b->a, v, at, &view));
	TSR_TRY(find_array(b, &view, at, &array));
	v->type = TSR_VALUE_TENSOR;
	v->mark = b->walk.mark;
	v->tensor.array = array;
	v->tensor.requires_grad = view.requires_grad;
	v->tensor.parameter = view.parameter;
	v->tensor.attributes = NULL;
	v->tensor.wrapper = NULL;
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
	v->tensor.array = args[0]->tensor.array;
	v->tensor.requires_grad = requires_grad;
	v->tensor.parameter = true;
	v->tensor.attributes = attributes;
	v->tensor.wrapper = NULL;
	v->type = TSR_VALUE_TENSOR;
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
	if (!b->nnumpy++)
		memcpy(b->numpy, at, strlen(at) + 1);
}

/* How many objects that are left out get a note of their own. */
#define DROPPED_NOTES 10u

/* None in the place of an object; keys must stay apart. */
static enum tsr_status drop(struct binding *b, struct tsr_value *v, const char *at)
{
	const struct tsr_value *parent = tsr_value_walk_parent(&b->walk, 0);
	char text[TSR_VALUE_DESCRIBED];

	if (parent && parent->type == TSR_VALUE_DICT && b->walk.path[b->walk.n - 2].next % 2)
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
	char at[PATH_NBYTES], text[TSR_VALUE_DESCRIBED];
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
	char at[PATH_NBYTES];

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

/* All tensors together, like each one, are limited to a multiple of what is stored. */
static enum tsr_status check_total(const struct binding *b)
{
	const struct tsr_torch_archive *a = b->a;
	uint64_t most = TSR_TORCH_EXPANSION_FREE_ALL;

	if (!a->zip)
		return TSR_OK;
	for (size_t i = 0; i < a->zip->nmembers; i++) {
		uint64_t more;

		if (__builtin_mul_overflow(a->records[i].nbytes, (uint64_t)TSR_TORCH_EXPANSION_MAX,
					   &more) ||
		    __builtin_add_overflow(most, more, &most))
			return TSR_OK;
	}
	if (b->nbytes <= most)
		return TSR_OK;
	return tsr_fail(
		a->err, TSR_E_LIMIT,
		"%s: tensors of %" PRIu64
		" bytes together are over the limit of %u times what is stored and 64 MiB, %" PRIu64
		" bytes",
		a->where, b->nbytes, TSR_TORCH_EXPANSION_MAX, most);
}

static enum tsr_status bind_all(struct binding *b)
{
	struct tsr_value *v;

	while ((v = tsr_value_walk_next(&b->walk)) != NULL)
		TSR_TRY(bind_value(b, v));
	TSR_TRY(check_total(b));
	if (b->nloose)
		TSR_TRY(tsr_build_note(
			b->a->c, b->a->err,
			"%.200s: tensor %.200s: is a view with gaps or repeated elements, "
			"and becomes row-major without them (%zu in all)",
			b->a->where, b->loose, b->nloose));
	if (b->ndropped > DROPPED_NOTES)
		TSR_TRY(tsr_build_note(b->a->c, b->a->err,
				       "%.200s: %zu objects in all were left out", b->a->where,
				       b->ndropped));
	if (!b->nnumpy)
		return TSR_OK;
	return tsr_build_remark(
		b->a->c, b->a->err,
		"%.200s: %s: a NumPy value is kept as it is, not as a tensor (%zu in all)",
		b->a->where, *b->numpy ? b->numpy : "the root", b->nnumpy);
}

enum tsr_status tsr_torch_bind(struct tsr_torch_archive *a, struct tsr_value *root,
			       const char *prefix)
{
	struct binding *b;
	enum tsr_status status;

	TSR_TRY(TSR_NEW(&b, 1, a->err, a->where));
	b->a = a;
	b->prefix = prefix;
	b->views = (struct tsr_map){ .item_nbytes = sizeof(struct seen), .same = is_seen };
	b->walk.root = root;
	b->walk.mark = TSR_MARK_TORCH;
	status = bind_all(b);
	tsr_map_free(&b->views);
	free(b);
	return status;
}

/* --- A whole archive ------------------------------------------------------------------------ */

static enum tsr_status note_unused(struct tsr_torch_archive *a)
{
	size_t n = 0, first = 0;

	for (size_t i = a->zip->nmembers; i--;) {
		if (a->used[i])
			continue;
		first = i;
		n++;
	}
	a->c->nunused += n;
	if (!n)
		return TSR_OK;
	a->c->unused = tsr_arena_string(a->c->arena, a->zip->members[first].name);
	if (!a->c->unused)
		return tsr_build_nomem(a->c, a->err);
	return tsr_build_note(a->c, a->err,
			      "%.200s: member %.200s is part of no tensor (%zu in all)", a->where,
			      a->zip->members[first].name, n);
}

/* How often the values went through a lossy codec: tersor keeps it in a record of its own. */
static enum tsr_status read_generation(struct tsr_torch_archive *a)
{
	const struct tsr_zip_member *m = tsr_torch_find(a, TSR_GENERATION_KEY);
	TSR_OWNED(free) void *text = NULL;
	const char *copy;

	if (!m)
		return TSR_OK;
	a->used[m - a->zip->members] = true;
	TSR_TRY(tsr_zip_load(a->c->files[a->file], m, 16, a->where, &text, a->err));
	copy = tsr_arena_copy(a->c->arena, text, m->nbytes);
	if (!copy)
		return tsr_build_nomem(a->c, a->err);
	return tsr_build_meta(a->c, TSR_GENERATION_KEY, copy, a->err);
}

enum tsr_status tsr_torch_read(struct tsr_checkpoint *c, unsigned file, uint64_t base,
			       uint64_t nbytes, const char *where, const char *prefix,
			       struct tsr_value **root_ret, struct tsr_err *err)
{
	TSR_SCOPED(tsr_torch_close)
	struct tsr_torch_archive a = { .c = c, .file = file, .where = where, .err = err };
	struct tsr_value *root = NULL;

	TSR_TRY(tsr_torch_open(&a, base, nbytes));
	TSR_TRY(tsr_torch_load(&a, c->arena, &root));
	TSR_TRY(tsr_torch_bind(&a, root, prefix));
	TSR_TRY(read_generation(&a));
	TSR_TRY(note_unused(&a));
	*root_ret = root;
	return TSR_OK;
}

enum tsr_status tsr_torch_read_tensor(struct tsr_checkpoint *c, unsigned file, uint64_t base,
				      uint64_t nbytes, const char *where,
				      struct tsr_torch_view *ret, struct tsr_err *err)
{
	TSR_SCOPED(tsr_torch_close)
	struct tsr_torch_archive a = { .c = c, .file = file, .where = where, .err = err };
	TSR_OWNED(tsr_arena_free) struct tsr_arena *arena = tsr_arena_new(TSR_BUILD_NBYTES_MAX);
	struct tsr_value *root = NULL;

	if (!arena)
		return tsr_fail_nomem(err, where);
	TSR_TRY(tsr_torch_open(&a, base, nbytes));
	TSR_TRY(tsr_torch_load(&a, arena, &root));
	if (!tsr_torch_is_tensor(root))
		TSR_TRY(tsr_torch_fail(&a, TSR_E_FORMAT, "", "found no tensor, expected just one"));
	TSR_TRY(tsr_torch_view(&a, root, "", ret));
	return read_generation(&a);
}
