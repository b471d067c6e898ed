/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a .pt file: the pickle of what was saved, and the archive that torch.save makes of it. */
#include "torch/torch_write.h"

#include <stdio.h>

#include "base/fail.h"
#include "format/pickle.h"
#include "format/value_walk.h"
#include "torch/torch.h"

/* --- What is saved ------------------------------------------------------------------------------ */

bool tsr_torch_is_flat(const struct tsr_value *v)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);

	for (size_t i = 0; mapping && i + 1 < mapping->list.n; i += 2) {
		if (mapping->list.items[i + 1]->type != TSR_VALUE_TENSOR)
			return false;
	}
	return mapping != NULL;
}

enum tsr_status tsr_torch_root(struct tsr_checkpoint *c, struct tsr_value **ret,
			       struct tsr_err *err)
{
	struct tsr_value *root;
	bool flat = true, ok = true;

	*ret = c->ntrees ? c->trees[0] : NULL;
	if (c->ntrees < 2)
		return TSR_OK;
	for (size_t i = 0; i < c->ntrees; i++)
		flat = flat && tsr_torch_is_flat(c->trees[i]);
	root = tsr_value_new(c->arena, flat ? TSR_VALUE_DICT : TSR_VALUE_LIST);
	for (size_t i = 0; root && ok && i < c->ntrees; i++) {
		const struct tsr_value *mapping = tsr_value_mapping(c->trees[i]);

		ok = flat ? tsr_value_put_all(c->arena, root, mapping)
			  : tsr_value_add(c->arena, root, c->trees[i]);
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
		struct tsr_value *tensor = tsr_value_tensor(c->arena, c->tensors[i].plane[0]);

		if (!*c->tensors[i].name)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: found a tensor with an empty name, expected one that "
					"a .pt file can be read with",
					c->path);
		ok = tsr_value_put_at(c->arena, root, c->tensors[i].name, tensor);
	}
	*ret = root;
	return ok ? TSR_OK : tsr_build_nomem(c, err);
}

/* --- Order ------------------------------------------------------------------------------------- */

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

static void order_tree(struct ordering *o, struct tsr_value *root)
{
	struct tsr_value_walk walk = { .root = root, .mark = TSR_MARK_ORDERED };
	const struct tsr_value *v;

	while ((v = tsr_value_walk_next(&walk)) != NULL) {
		if (v->type == TSR_VALUE_TENSOR)
			put_in_order(o, v->tensor.array);
	}
}

/*
 * The numbers of all tensors in the order in which the trees reach them; tensors that they do not
 * reach come last.
 */
static enum tsr_status order_tensors(struct tsr_checkpoint *c, size_t *order, struct tsr_err *err)
{
	struct ordering o = { .order = order };

	TSR_TRY(TSR_NEW(&o.tensor_of, c->narrays + 1, err, c->path));
	tsr_build_by_array(c, o.tensor_of);
	for (size_t i = 0; i < c->ntrees; i++)
		order_tree(&o, c->trees[i]);
	for (size_t i = 0; i < c->ntensors; i++)
		put_in_order(&o, c->tensors[i].plane[0]);
	free(o.tensor_of);
	return TSR_OK;
}

/* --- The pickle --------------------------------------------------------------------------------- */

enum tsr_status tsr_torch_describe(const struct tsr_checkpoint *c, const char *const *keys,
				   struct tsr_pickle_tensor **ret, struct tsr_err *err)
{
	TSR_TRY(TSR_NEW(ret, c->narrays + 1, err, c->path));
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		const struct tsr_torch_dtype *dtype = tsr_torch_dtype(t->dtype);

		if (!dtype)
			return tsr_fail(err, TSR_E_UNSUPPORTED,
					"%s: tensor %.200s: torch has no dtype like %s", c->path,
					t->name, tsr_dtype_name(t->dtype));
		(*ret)[t->plane[0]] = (struct tsr_pickle_tensor){
			.key = keys ? keys[i] : NULL,
			.storage = dtype->storage,
			.dtype = dtype->name,
			.storage_numel = dtype->storage ? t->numel : tsr_tensor_nbytes(t),
			.rank = t->rank,
			.shape = t->shape,
			.stride = c->arrays[t->plane[0]].stride,
		};
	}
	return TSR_OK;
}

enum tsr_status tsr_torch_pickle(struct tsr_checkpoint *c, const struct tsr_value *root,
				 const char *const *keys, struct tsr_text *out, struct tsr_err *err)
{
	TSR_OWNED(free) struct tsr_pickle_tensor *tensors = NULL;

	TSR_TRY(tsr_torch_describe(c, keys, &tensors, err));
	TSR_TRY(tsr_pickle_write(root, tensors, c->path, out, err));
	return out->failed ? tsr_fail_nomem(err, c->path) : TSR_OK;
}

/* --- The archive -------------------------------------------------------------------------------- */

static enum tsr_status add_text(struct tsr_zip_members *m, const char *name, const char *contents,
				struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };

	tsr_text_puts(&text, contents);
	return tsr_zip_members_add(m, "archive/", name, "", &text, 0, err);
}

/* PyTorch ignores records that it does not know, so the number of lossy generations is one of those. */
static enum tsr_status add_version(struct tsr_zip_members *m, unsigned generation,
				   struct tsr_err *err)
{
	char number[16];

	TSR_TRY(add_text(m, "version", "3\n", err));
	if (!generation)
		return TSR_OK;
	snprintf(number, sizeof(number), "%u", generation);
	return add_text(m, TSR_GENERATION_KEY, number, err);
}

/* The key of a storage: its number in the archive. */
struct key {
	char digits[24];
};

enum tsr_status tsr_torch_add_archive(const struct tsr_checkpoint *c, const struct tsr_value *root,
				      struct tsr_pickle_tensor *tensors, const size_t *list,
				      size_t n, unsigned generation, const char *path,
				      struct tsr_zip_members *m, struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text pickle = { 0 };
	TSR_OWNED(free) struct key *keys = NULL;

	TSR_TRY(TSR_NEW(&keys, n + 1, err, path));
	for (size_t i = 0; i < n; i++) {
		snprintf(keys[i].digits, sizeof(keys[i].digits), "%zu", i);
		tensors[c->tensors[list[i]].plane[0]].key = keys[i].digits;
	}
	TSR_TRY(tsr_pickle_write(root, tensors, path, &pickle, err));
	if (pickle.failed)
		return tsr_fail_nomem(err, path);
	TSR_TRY(tsr_zip_members_add(m, "archive/", "data.pkl", "", &pickle, 0, err));
	TSR_TRY(add_text(m, "byteorder", "little", err));
	for (size_t i = 0; i < n; i++)
		TSR_TRY(tsr_zip_members_add(m, "archive/data/", keys[i].digits, "", NULL,
					    tsr_tensor_nbytes(&c->tensors[list[i]]), err));
	return add_version(m, generation, err);
}

enum tsr_status tsr_torch_write_members(struct tsr_checkpoint *c, unsigned generation,
					struct tsr_zip_members *m, size_t **member_ret,
					const char *path, struct tsr_err *err)
{
	const size_t n = c->ntensors;
	TSR_OWNED(free) struct tsr_pickle_tensor *tensors = NULL;
	TSR_OWNED(free) size_t *order = NULL;
	struct tsr_value *root = NULL;

	TSR_TRY(TSR_NEW(member_ret, n + 1, err, path));
	TSR_TRY(TSR_NEW(&order, n + 1, err, path));
	TSR_TRY(tsr_zip_members_init(m, n + 4, path, err));
	TSR_TRY(order_tensors(c, order, err));
	TSR_TRY(tsr_torch_root(c, &root, err));
	if (!root)
		TSR_TRY(flat_root(c, &root, err));
	TSR_TRY(tsr_torch_describe(c, NULL, &tensors, err));
	TSR_TRY(tsr_torch_add_archive(c, root, tensors, order, n, generation, c->path, m, err));
	for (size_t i = 0; i < n; i++)
		(*member_ret)[order[i]] = TSR_TORCH_DATA_MEMBER + i;
	return TSR_OK;
}
