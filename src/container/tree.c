/* SPDX-License-Identifier: Apache-2.0 */
/* What was saved around the tensors, in a safetensors file: a pickle in its metadata or a tensor. */
#include "container/tree.h"

#include "ckpt/checkpoint_model.h"
#include "text/base64.h"
#include "base/fail.h"
#include "ckpt/piece_hash.h"
#include "format/pickle.h"
#include "format/value_walk.h"
#include "names/optimizer_ids.h"
#include "torch/torch.h"
#include "torch/torch_archive.h"
#include "torch/torch_write.h"

/* --- Writing ------------------------------------------------------------------------------------ */

static enum tsr_status attach_meta(struct tsr_checkpoint *c, const struct tsr_text *pickle,
				   struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text text = { 0 };
	const char *value;

	tsr_base64_put(&text, pickle->bytes, pickle->nbytes);
	value = text.failed ? NULL : tsr_arena_copy(c->arena, text.bytes, text.nbytes);
	if (!value)
		return tsr_build_nomem(c, err);
	TSR_TRY(tsr_build_meta(c, TSR_TREE_KEY, value, err));
	/* Metadata is sorted. */
	for (size_t at = c->nmeta - 1; at > 0; at--) {
		const struct tsr_meta m = c->meta[at];

		if (strcmp(c->meta[at - 1].key, m.key) < 0)
			break;
		c->meta[at] = c->meta[at - 1];
		c->meta[at - 1] = m;
	}
	return TSR_OK;
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
	TSR_TRY(tsr_plane_hashes_whole(&t, (void *const[]){ pickle->bytes }, t.hash, c->path, err));
	TSR_TRY(tsr_build_tensor(c, &t, err));
	return tsr_build_index(c, err);
}

/* The tree as a pickle; nothing is put if there is none. */
static enum tsr_status put_tree(struct tsr_checkpoint *c, struct tsr_text *pickle,
				struct tsr_err *err)
{
	TSR_OWNED(free) const char **names = NULL;
	struct tsr_value *root = NULL;

	TSR_TRY(tsr_torch_root(c, &root, err));
	if (!root)
		return TSR_OK;
	TSR_TRY(TSR_NEW(&names, c->ntensors + 1, err, c->path));
	for (size_t i = 0; i < c->ntensors; i++)
		names[i] = c->tensors[i].name;
	return tsr_torch_pickle(c, root, names, pickle, err);
}

enum tsr_status tsr_tree_attach(struct tsr_checkpoint *c, struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text pickle = { 0 };

	TSR_TRY(put_tree(c, &pickle, err));
	if (pickle.nbytes)
		TSR_TRY(pickle.nbytes <= TSR_TREE_META_MAX ? attach_meta(c, &pickle, err)
							   : attach_tensor(c, &pickle, err));
	return TSR_OK;
}

enum tsr_status tsr_checkpoint_tree(struct tsr_checkpoint *c, const void **ret, size_t *nbytes_ret,
				    struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text pickle = { 0 };

	TSR_TRY(put_tree(c, &pickle, err));
	*ret = pickle.nbytes ? tsr_arena_copy(c->arena, pickle.bytes, pickle.nbytes) : NULL;
	*nbytes_ret = pickle.nbytes;
	if (pickle.nbytes && !*ret)
		TSR_TRY(tsr_build_nomem(c, err));
	return TSR_OK;
}

/* --- Reading ------------------------------------------------------------------------------------ */

/* The strides that PyTorch gave it; those of older files say nothing. */
static enum tsr_status read_strides(const struct tsr_torch_archive *a, const struct tsr_value *v,
				    const struct tsr_tensor *t, const char *at)
{
	uint64_t *stride = tsr_arena_alloc(a->c->arena, t->rank * sizeof(*stride));
	bool ok = v->type == TSR_VALUE_TUPLE && v->list.n == t->rank;

	if (!stride)
		return tsr_build_nomem(a->c, a->err);
	for (unsigned d = 0; ok && d < t->rank; d++)
		ok = tsr_value_get_u64(v->list.items[d], &stride[d]);
	if (!ok || !tsr_strides_are_dense(t->rank, t->shape, stride))
		return tsr_torch_fail(a, TSR_E_FORMAT, at,
				      "found strides of tensor %.200s that do not put its "
				      "elements one after the other",
				      t->name);
	if (!tsr_strides_are_rows(t->rank, t->shape, stride))
		a->c->arrays[t->plane[0]].stride = stride;
	return TSR_OK;
}

/* The tensor whose name is the key of the storage in the arguments of a call. */
static enum tsr_status find_tensor(void *ctx, const struct tsr_value *call, const char *at,
				   struct tsr_value *ret)
{
	const struct tsr_torch_archive *a = ctx;
	const struct tsr_value *args = call->call.args, *id = NULL;
	const struct tsr_tensor *t;

	if (args->type == TSR_VALUE_TUPLE && args->list.n >= 5 &&
	    args->list.items[0]->type == TSR_VALUE_PERSISTENT)
		id = args->list.items[0]->inner;
	if (!id || id->type != TSR_VALUE_TUPLE || id->list.n < 3 ||
	    id->list.items[2]->type != TSR_VALUE_STRING)
		return tsr_torch_fail(a, TSR_E_FORMAT, at,
				      "found a tensor without the name of one in its storage");
	t = tsr_checkpoint_find(a->c, id->list.items[2]->text.bytes);
	if (!t)
		return tsr_torch_fail(a, TSR_E_FORMAT, at,
				      "has tensor %.200s, which the file does not",
				      id->list.items[2]->text.bytes);
	ret->tensor.array = t->plane[0];
	ret->tensor.requires_grad = args->list.items[4]->type == TSR_VALUE_BOOL &&
				    args->list.items[4]->boolean;
	return read_strides(a, args->list.items[3], t, at);
}

static enum tsr_status restore(struct tsr_checkpoint *c, const void *pickle, size_t nbytes,
			       struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text where = { 0 };
	struct tsr_torch_archive a = { .c = c, .err = err };
	struct tsr_torch_numpy numpy = { .n = 0 };
	struct tsr_value *root = NULL;

	tsr_text_printf(&where, "%s: " TSR_TREE_KEY, c->path);
	if (where.failed)
		return tsr_fail_nomem(err, c->path);
	a.where = where.bytes;
	TSR_TRY(tsr_pickle_read(pickle, nbytes, where.bytes, c->arena, &root, err));
	TSR_TRY(tsr_torch_bind_with(&a, root, find_tensor, &a, &numpy));
	return tsr_build_tree(c, root, err);
}

static enum tsr_status restore_meta(struct tsr_checkpoint *c, size_t at, struct tsr_err *err)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text pickle = { 0 };

	if (!tsr_base64_get(&pickle, c->meta[at].value))
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: __metadata__: " TSR_TREE_KEY " is not base64 text", c->path);
	if (pickle.failed)
		return tsr_fail_nomem(err, c->path);
	c->nmeta--;
	memmove(&c->meta[at], &c->meta[at + 1], (c->nmeta - at) * sizeof(*c->meta));
	return restore(c, pickle.bytes, pickle.nbytes, err);
}

static enum tsr_status restore_tensor(struct tsr_checkpoint *c, const struct tsr_tensor *t,
				      struct tsr_err *err)
{
	const struct tsr_array a = c->arrays[t->plane[0]];
	const size_t at = (size_t)(t - c->tensors);
	uint64_t hash = 0;
	TSR_OWNED(free) char *pickle = NULL;

	if (t->dtype != TSR_U8 || t->coding.codec || a.nbytes > TSR_PICKLE_NBYTES_MAX)
		return tsr_fail(err, TSR_E_FORMAT,
				"%s: tensor " TSR_TREE_TENSOR ": found %" PRIu64
				" bytes of %s, expected at most %" PRIu64 " of U8",
				c->path, a.nbytes, tsr_dtype_name(t->dtype),
				(uint64_t)TSR_PICKLE_NBYTES_MAX);
	TSR_TRY(TSR_NEW(&pickle, a.nbytes + 1, err, c->path));
	TSR_TRY(tsr_array_read(c, &a, 0, a.nbytes, pickle, err));
	TSR_TRY(tsr_plane_hashes_whole(t, (void *const[]){ pickle }, &hash, c->path, err));
	if (c->packed)
		TSR_TRY(tsr_plane_hashes_check(c, t, &hash, err));
	/* It is not a tensor of the checkpoint, so it leaves the list and the sorted names. */
	c->ntensors--;
	memmove(&c->tensors[at], &c->tensors[at + 1], (c->ntensors - at) * sizeof(*c->tensors));
	for (size_t i = 0, k = 0; i <= c->ntensors; i++) {
		const size_t index = c->tensor_by_name[i];

		if (index != at)
			c->tensor_by_name[k++] = index - (index > at);
	}
	return restore(c, pickle, a.nbytes, err);
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

/* --- Completing --------------------------------------------------------------------------------- */

static void mark_reached(const struct tsr_checkpoint *c, bool *reached)
{
	for (size_t i = 0; i < c->ntrees; i++) {
		struct tsr_value_walk walk = { .root = c->trees[i], .mark = TSR_MARK_REACHED };
		const struct tsr_value *v;

		while ((v = tsr_value_walk_next(&walk)) != NULL) {
			if (v->type == TSR_VALUE_TENSOR)
				reached[v->tensor.array] = true;
		}
	}
}

/* A flat mapping of the tensors that no tree reaches, without items if there are none. */
static enum tsr_status collect_others(struct tsr_checkpoint *c, const bool *reached,
				      struct tsr_value *flat, struct tsr_err *err)
{
	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];

		if (!reached[t->plane[0]] &&
		    !tsr_value_put_at(c->arena, flat, t->name,
				      tsr_value_tensor(c->arena, t->plane[0])))
			return tsr_build_nomem(c, err);
	}
	return TSR_OK;
}

static bool has_optimizer(const struct tsr_value *mapping)
{
	for (size_t i = 1; mapping && i < mapping->list.n; i += 2) {
		if (tsr_optim_is(mapping->list.items[i]))
			return true;
	}
	return false;
}

/*
 * A model without a tree and an optimizer's: what a program that saves both would save.  A root that
 * has the optimizer among its values gets the model beside it.
 */
static enum tsr_status join_model(struct tsr_checkpoint *c, struct tsr_value *model,
				  struct tsr_err *err)
{
	struct tsr_value *tree = c->trees[0], *root = tsr_value_new(c->arena, TSR_VALUE_DICT);
	const struct tsr_value *mapping = tsr_value_mapping(tree);

	if (!tsr_value_put_at(c->arena, root, "model", model) ||
	    !(tsr_optim_is(tree) ? tsr_value_put_at(c->arena, root, "optimizer", tree)
				 : tsr_value_put_all(c->arena, root, mapping)))
		return tsr_build_nomem(c, err);
	c->trees[0] = root;
	return TSR_OK;
}

static enum tsr_status complete(struct tsr_checkpoint *c, bool joined, struct tsr_value *flat,
				struct tsr_err *err)
{
	if (!flat->list.n)
		return TSR_OK;
	if (!joined)
		TSR_TRY(tsr_build_note(c, err,
				       "%s: tensor %.200s is not part of what was saved "
				       "(" TSR_TREE_KEY "; %zu in all)",
				       c->path, flat->list.items[0]->text.bytes, flat->list.n / 2));
	if (c->ntrees == 1 &&
	    (tsr_optim_is(c->trees[0]) || (has_optimizer(tsr_value_mapping(c->trees[0])) &&
					   !tsr_value_at(c->trees[0], "model"))))
		return join_model(c, flat, err);
	TSR_TRY(tsr_build_tree(c, flat, err));
	memmove(&c->trees[1], &c->trees[0], (c->ntrees - 1) * sizeof(*c->trees));
	c->trees[0] = flat;
	return TSR_OK;
}

enum tsr_status tsr_tree_complete(struct tsr_checkpoint *c, bool joined, struct tsr_err *err)
{
	TSR_OWNED(free) bool *reached = NULL;
	struct tsr_value *flat;

	if (!c->ntrees)
		return TSR_OK;
	flat = tsr_value_new(c->arena, TSR_VALUE_DICT);
	if (!flat)
		return tsr_build_nomem(c, err);
	TSR_TRY(TSR_NEW(&reached, c->narrays + 1, err, c->path));
	mark_reached(c, reached);
	TSR_TRY(collect_others(c, reached, flat, err));
	return complete(c, joined, flat, err);
}
