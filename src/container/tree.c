/* SPDX-License-Identifier: Apache-2.0 */
#include "container/tree.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint_model.h"
#include "text/base64.h"
#include "base/fail.h"
#include "base/hash.h"
#include "container/containers.h"
#include "format/pickle.h"
#include "torch/torch.h"
#include "torch/torch_archive.h"

/* --- One root ---------------------------------------------------------------------------------- */

static bool is_flat(const struct tsr_value *v)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);

	for (size_t i = 0; mapping && i + 1 < mapping->list.n; i += 2) {
		if (mapping->list.items[i + 1]->type != TSR_VALUE_TENSOR)
			return false;
	}
	return mapping != NULL;
}

enum tsr_status tsr_tree_root(struct tsr_checkpoint *c, struct tsr_value **ret, struct tsr_err *err)
{
	struct tsr_value *root;
	bool flat = true, ok = true;

	*ret = c->ntrees ? c->trees[0] : NULL;
	if (c->ntrees < 2)
		return TSR_OK;
	for (size_t i = 0; i < c->ntrees; i++)
		flat = flat && is_flat(c->trees[i]);
	root = tsr_value_new(c->arena, flat ? TSR_VALUE_DICT : TSR_VALUE_LIST);
	for (size_t i = 0; root && ok && i < c->ntrees; i++) {
		const struct tsr_value *mapping = tsr_value_mapping(c->trees[i]);

		for (size_t k = 0; flat && ok && k < mapping->list.n; k++)
			ok = tsr_value_add(c->arena, root, mapping->list.items[k]);
		if (!flat)
			ok = tsr_value_add(c->arena, root, c->trees[i]);
	}
	*ret = root;
	return root && ok ? TSR_OK : tsr_build_nomem(c, err);
}

/* A flat mapping from names to tensors. */
static enum tsr_status flat_root(struct tsr_checkpoint *c, struct tsr_value **ret,
				 struct tsr_err *err)
{
	struct tsr_value *root = tsr_value_new(c->arena, TSR_VALUE_DICT);
	bool ok = root != NULL;

	for (size_t i = 0; ok && i < c->ntensors; i++) {
		struct tsr_value *name = tsr_value_string(c->arena, c->tensors[i].name);
		struct tsr_value *tensor = tsr_value_new(c->arena, TSR_VALUE_TENSOR);

		ok = name && tensor && tsr_value_add(c->arena, root, name) &&
		     tsr_value_add(c->arena, root, tensor);
		if (ok)
			tensor->tensor.array = c->tensors[i].plane[0];
	}
	*ret = root;
	return ok ? TSR_OK : tsr_build_nomem(c, err);
}

/* --- Order ------------------------------------------------------------------------------------- */

/* Values whose tensors were put in order. */
#define MARK_ORDERED 5u

struct ordering {
	size_t *tensor_of; /* per array: the tensor whose first plane it is, or SIZE_MAX */
	size_t *order, n;
};

static void put_in_order(struct ordering *o, size_t array)
{
	if (o->tensor_of[array] == SIZE_MAX)
		return;
	o->order[o->n++] = o->tensor_of[array];
	o->tensor_of[array] = SIZE_MAX;
}

static void order_value(struct ordering *o, struct tsr_value *v)
{
	if (!v || v->mark == MARK_ORDERED)
		return;
	v->mark = MARK_ORDERED;
	if (v->type == TSR_VALUE_TENSOR)
		put_in_order(o, v->tensor.array);
	if (v->type == TSR_VALUE_CALL) {
		order_value(o, v->call.args);
		order_value(o, v->call.items);
		order_value(o, v->call.state);
	}
	for (size_t i = 0; tsr_value_is_list(v) && i < v->list.n; i++)
		order_value(o, v->list.items[i]);
}

enum tsr_status tsr_tree_order(struct tsr_checkpoint *c, size_t *order, struct tsr_err *err)
{
	struct ordering o = { .order = order };

	o.tensor_of = malloc((c->narrays + 1) * sizeof(*o.tensor_of));
	if (!o.tensor_of)
		return tsr_fail_nomem(err, c->path);
	for (size_t i = 0; i < c->narrays; i++)
		o.tensor_of[i] = SIZE_MAX;
	for (size_t i = 0; i < c->ntensors; i++)
		o.tensor_of[c->tensors[i].plane[0]] = i;
	for (size_t i = 0; i < c->ntrees; i++)
		order_value(&o, c->trees[i]);
	for (size_t i = 0; i < c->ntensors; i++)
		put_in_order(&o, c->tensors[i].plane[0]);
	free(o.tensor_of);
	return TSR_OK;
}

/* --- Writing ------------------------------------------------------------------------------------ */

/* What torch calls the tensors, by the array that TENSOR values refer to. */
static enum tsr_status describe(const struct tsr_checkpoint *c, const char *const *keys,
				struct tsr_pickle_tensor *tensors, struct tsr_err *err)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		const struct tsr_torch_dtype *dtype = tsr_torch_dtype(t->dtype);

		if (!dtype)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: dtype %s has no equal in torch",
					c->path, t->name, tsr_dtype_name(t->dtype));
		tensors[t->plane[0]] = (struct tsr_pickle_tensor){
			.key = keys[i],
			.storage = dtype->storage,
			.dtype = dtype->name,
			.storage_numel = dtype->storage ? t->numel : tsr_tensor_nbytes(t),
			.rank = t->rank,
			.shape = t->shape,
		};
	}
	return TSR_OK;
}

static enum tsr_status write_root(struct tsr_checkpoint *c, const struct tsr_value *root,
				  const char *const *keys, struct tsr_text *out,
				  struct tsr_err *err)
{
	struct tsr_pickle_tensor *tensors = calloc(c->narrays + 1, sizeof(*tensors));
	enum tsr_status status = tensors ? describe(c, keys, tensors, err)
					 : tsr_fail_nomem(err, c->path);

	if (status == TSR_OK)
		status = tsr_pickle_write(root, tensors, c->path, out, err);
	free(tensors);
	if (status == TSR_OK && out->failed)
		status = tsr_fail_nomem(err, c->path);
	return status;
}

enum tsr_status tsr_tree_compose(struct tsr_checkpoint *c, const char *const *keys,
				 struct tsr_text *out, struct tsr_err *err)
{
	struct tsr_value *root = NULL;

	TSR_TRY(tsr_tree_root(c, &root, err));
	if (!root)
		TSR_TRY(flat_root(c, &root, err));
	return write_root(c, root, keys, out, err);
}

static enum tsr_status attach_meta(struct tsr_checkpoint *c, const struct tsr_text *pickle,
				   struct tsr_err *err)
{
	struct tsr_text text = { 0 };
	enum tsr_status status;
	const char *value;
	size_t at;

	tsr_base64_put(&text, pickle->bytes, pickle->nbytes);
	value = text.failed ? NULL : tsr_arena_copy(c->arena, text.bytes, text.nbytes);
	tsr_text_free(&text);
	if (!value)
		return tsr_build_nomem(c, err);
	status = tsr_build_meta(c, TSR_TREE_KEY, value, err);
	/* Metadata is sorted. */
	for (at = c->nmeta - 1; status == TSR_OK && at > 0; at--) {
		const struct tsr_meta m = c->meta[at];

		if (strcmp(c->meta[at - 1].key, m.key) < 0)
			break;
		c->meta[at] = c->meta[at - 1];
		c->meta[at - 1] = m;
	}
	return status;
}

static enum tsr_status attach_tensor(struct tsr_checkpoint *c, const struct tsr_text *pickle,
				     struct tsr_err *err)
{
	uint64_t *shape = tsr_arena_alloc(c->arena, sizeof(*shape));
	struct tsr_array a = {
		.name = TSR_TREE_TENSOR, .dtype = TSR_U8, .rank = 1, .shape = shape
	};
	struct tsr_tensor t = { .name = TSR_TREE_TENSOR,
				.dtype = TSR_U8,
				.rank = 1,
				.shape = shape,
				.numel = pickle->nbytes,
				.coding = { .group = 1 },
				.nplanes = 1 };
	struct tsr_file *scratch = NULL;

	if (!shape)
		return tsr_build_nomem(c, err);
	*shape = pickle->nbytes;
	TSR_TRY(tsr_file_scratch(c->path, &scratch, err));
	TSR_TRY(tsr_build_file(c, scratch, &a.file, err));
	TSR_TRY(tsr_file_scratch_write(scratch, pickle->bytes, pickle->nbytes, 0, err));
	TSR_TRY(tsr_build_array(c, &a, &t.plane[0], err));
	t.hash[0] = tsr_hash(pickle->bytes, pickle->nbytes, 0);
	return tsr_build_tensor(c, &t, err);
}

enum tsr_status tsr_tree_attach(struct tsr_checkpoint *c, struct tsr_err *err)
{
	const char **names;
	struct tsr_value *root = NULL;
	struct tsr_text pickle = { 0 };
	enum tsr_status status;

	TSR_TRY(tsr_tree_root(c, &root, err));
	if (!root)
		return TSR_OK;
	names = calloc(c->ntensors + 1, sizeof(*names));
	if (!names)
		return tsr_fail_nomem(err, c->path);
	for (size_t i = 0; i < c->ntensors; i++)
		names[i] = c->tensors[i].name;
	status = write_root(c, root, names, &pickle, err);
	free(names);
	if (status == TSR_OK)
		status = pickle.nbytes <= TSR_TREE_META_MAX ? attach_meta(c, &pickle, err)
							    : attach_tensor(c, &pickle, err);
	tsr_text_free(&pickle);
	return status;
}

/* --- Reading ------------------------------------------------------------------------------------ */

/* Values in which names were turned into tensors. */
#define MARK_BOUND 3u

struct binding {
	struct tsr_checkpoint *c;
	bool *bound; /* per tensor */
	struct tsr_err *err;
};

/* The name of the tensor that a call rebuilds, or NULL if it is another call. */
static const char *rebuilt_name(const struct tsr_value *v)
{
	const struct tsr_value *args = v->type == TSR_VALUE_CALL ? v->call.args : NULL, *id;

	if (!tsr_value_is_call(v, "torch._utils", "_rebuild_tensor_v2") &&
	    !tsr_value_is_call(v, "torch._utils", "_rebuild_tensor_v3"))
		return NULL;
	if (!args || args->type != TSR_VALUE_TUPLE || args->list.n < 5 ||
	    args->list.items[0]->type != TSR_VALUE_PERSISTENT)
		return NULL;
	id = args->list.items[0]->inner;
	if (id->type != TSR_VALUE_TUPLE || id->list.n < 3 ||
	    id->list.items[2]->type != TSR_VALUE_STRING)
		return NULL;
	return id->list.items[2]->text.bytes;
}

static bool is_true(const struct tsr_value *v)
{
	return v->type == TSR_VALUE_BOOL && v->boolean;
}

static enum tsr_status bind(struct binding *b, struct tsr_value *v);

static enum tsr_status bind_tensor(struct binding *b, struct tsr_value *v, const char *name)
{
	const bool requires_grad = is_true(v->call.args->list.items[4]);
	const struct tsr_tensor *t = tsr_checkpoint_find(b->c, name);

	if (!t)
		return tsr_fail(b->err, TSR_E_FORMAT,
				"%s: " TSR_TREE_KEY ": has tensor %.200s, which the file does not",
				b->c->path, name);
	b->bound[t - b->c->tensors] = true;
	v->type = TSR_VALUE_TENSOR;
	v->tensor.array = t->plane[0];
	v->tensor.requires_grad = requires_grad;
	v->tensor.parameter = false;
	return TSR_OK;
}

/* A parameter is its tensor, marked as one. */
static enum tsr_status bind_parameter(struct binding *b, struct tsr_value *v)
{
	const struct tsr_value *args = v->call.args;
	struct tsr_value *tensor;

	tensor = args && args->type == TSR_VALUE_TUPLE && args->list.n >= 2 ? args->list.items[0]
									    : NULL;
	TSR_TRY(bind(b, tensor));
	if (!tensor || tensor->type != TSR_VALUE_TENSOR)
		return tsr_fail(b->err, TSR_E_FORMAT,
				"%s: " TSR_TREE_KEY ": found a parameter that is no tensor",
				b->c->path);
	v->tensor.requires_grad = is_true(args->list.items[1]);
	v->type = TSR_VALUE_TENSOR;
	v->tensor.array = tensor->tensor.array;
	v->tensor.parameter = true;
	return TSR_OK;
}

static enum tsr_status bind(struct binding *b, struct tsr_value *v)
{
	const char *name;

	if (!v || v->mark == MARK_BOUND)
		return TSR_OK;
	v->mark = MARK_BOUND;
	name = rebuilt_name(v);
	if (name)
		return bind_tensor(b, v, name);
	if (tsr_value_is_call(v, "torch._utils", "_rebuild_parameter"))
		return bind_parameter(b, v);
	switch (v->type) {
	case TSR_VALUE_LIST:
	case TSR_VALUE_TUPLE:
	case TSR_VALUE_SET:
	case TSR_VALUE_FROZENSET:
	case TSR_VALUE_DICT:
		for (size_t i = 0; i < v->list.n; i++)
			TSR_TRY(bind(b, v->list.items[i]));
		return TSR_OK;
	case TSR_VALUE_GLOBAL:
		if (tsr_torch_is_harmless(v))
			return TSR_OK;
		return tsr_fail(b->err, TSR_E_UNSUPPORTED,
				"%s: " TSR_TREE_KEY ": found %s.%s, expected only what is known to "
				"be harmless; nothing was executed",
				b->c->path, v->global.module, v->global.name);
	case TSR_VALUE_CALL:
		TSR_TRY(bind(b, v->call.callee));
		TSR_TRY(bind(b, v->call.args));
		TSR_TRY(bind(b, v->call.items));
		return bind(b, v->call.state);
	default:
		return TSR_OK;
	}
}

static enum tsr_status restore(struct tsr_checkpoint *c, const void *pickle, size_t nbytes,
			       struct tsr_err *err)
{
	struct binding b = { .c = c, .err = err };
	struct tsr_value *root = NULL;
	struct tsr_text where = { 0 };
	enum tsr_status status;

	tsr_text_printf(&where, "%s: " TSR_TREE_KEY, c->path);
	if (where.failed)
		return tsr_fail_nomem(err, c->path);
	status = tsr_pickle_read(pickle, nbytes, where.bytes, c->arena, &root, err);
	tsr_text_free(&where);
	if (status != TSR_OK)
		return status;
	b.bound = calloc(c->ntensors + 1, sizeof(*b.bound));
	status = b.bound ? bind(&b, root) : tsr_fail_nomem(err, c->path);
	for (size_t i = 0; i < c->ntensors && status == TSR_OK; i++) {
		if (!b.bound[i])
			status = tsr_build_note(c, err,
						"%s: tensor %.200s is not part of what was saved "
						"(" TSR_TREE_KEY ")",
						c->path, c->tensors[i].name);
	}
	free(b.bound);
	return status == TSR_OK ? tsr_build_tree(c, root, err) : status;
}

static enum tsr_status restore_meta(struct tsr_checkpoint *c, size_t at, struct tsr_err *err)
{
	struct tsr_text pickle = { 0 };
	enum tsr_status status;

	if (!tsr_base64_get(&pickle, c->meta[at].value))
		status = tsr_fail(err, TSR_E_FORMAT,
				  "%s: __metadata__: " TSR_TREE_KEY " is no base64 text", c->path);
	else if (pickle.failed)
		status = tsr_fail_nomem(err, c->path);
	else
		status = restore(c, pickle.bytes, pickle.nbytes, err);
	tsr_text_free(&pickle);
	c->nmeta--;
	memmove(&c->meta[at], &c->meta[at + 1], (c->nmeta - at) * sizeof(*c->meta));
	return status;
}

static enum tsr_status restore_tensor(struct tsr_checkpoint *c, const struct tsr_tensor *t,
				      struct tsr_err *err)
{
	const struct tsr_array a = c->arrays[t->plane[0]];
	const size_t at = (size_t)(t - c->tensors);
	enum tsr_status status;
	char *pickle;

	if (t->dtype != TSR_U8 || t->coding.codec || a.nbytes > TSR_PICKLE_NBYTES_MAX)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: tensor " TSR_TREE_TENSOR ": found %llu bytes of %s, expected "
				"at most %llu of U8",
				c->path, (unsigned long long)a.nbytes, tsr_dtype_name(t->dtype),
				(unsigned long long)TSR_PICKLE_NBYTES_MAX);
	pickle = malloc(a.nbytes + 1);
	if (!pickle)
		return tsr_fail_nomem(err, c->path);
	status = tsr_array_read(c, &a, 0, a.nbytes, pickle, err);
	if (status == TSR_OK && c->packed && tsr_hash(pickle, a.nbytes, 0) != t->hash[0])
		status = tsr_fail(err, TSR_E_FORMAT,
				  "%s: tensor " TSR_TREE_TENSOR
				  ": data is damaged: its hash is not "
				  "the recorded one",
				  c->path);
	/* It is no tensor of the checkpoint; names are sorted again after this. */
	c->ntensors--;
	memmove(&c->tensors[at], &c->tensors[at + 1], (c->ntensors - at) * sizeof(*c->tensors));
	for (size_t i = 0, k = 0; i <= c->ntensors; i++) {
		const size_t index = c->tensor_by_name[i];

		if (index != at)
			c->tensor_by_name[k++] = index - (index > at);
	}
	if (status == TSR_OK)
		status = restore(c, pickle, a.nbytes, err);
	free(pickle);
	return status;
}

enum tsr_status tsr_tree_restore(struct tsr_checkpoint *c, struct tsr_err *err)
{
	const struct tsr_tensor *t = tsr_checkpoint_find(c, TSR_TREE_TENSOR);

	for (size_t i = 0; i < c->nmeta; i++) {
		if (strcmp(c->meta[i].key, TSR_TREE_KEY) != 0)
			continue;
		if (t)
			return tsr_fail(err, TSR_E_FORMAT,
					"%s: found both an entry " TSR_TREE_KEY
					" and a tensor " TSR_TREE_TENSOR ", expected one of them",
					c->path);
		return restore_meta(c, i, err);
	}
	return t ? restore_tensor(c, t, err) : TSR_OK;
}
