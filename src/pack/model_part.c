/* SPDX-License-Identifier: Apache-2.0 */
/* What of a checkpoint is the model: the part that loads into it strictly. */
#include "pack/model_part.h"

#include <stdlib.h>

#include "base/fail.h"
#include "ckpt/build.h"
#include "names/params/parameters.h"
#include "names/model_tree.h"
#include "text/text.h"

struct taking {
	struct tsr_checkpoint *c;
	struct tsr_tensor *from; /* the tensors that there were */
	size_t *tensor; /* per array: which of them it is the first plane of, or SIZE_MAX */
	bool once; /* a tensor with two names is taken once, under its own */
	struct tsr_text path; /* the keys that lead to a value of the model */
	size_t nothers; /* values of the model that are no tensors */
	struct tsr_err *err;
};

static enum tsr_status take(struct taking *t, size_t array)
{
	const size_t i = t->tensor[array];
	struct tsr_tensor tensor;

	if (i == SIZE_MAX)
		return TSR_OK;
	tensor = t->from[i];
	if (t->once)
		t->tensor[array] = SIZE_MAX;
	else
		tensor.name = tsr_arena_copy(t->c->arena, t->path.bytes, t->path.nbytes);
	return tensor.name ? tsr_build_tensor(t->c, &tensor, t->err)
			   : tsr_build_nomem(t->c, t->err);
}

static enum tsr_status walk(struct taking *t, const struct tsr_value *v)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);
	const size_t at = t->path.nbytes;
	int64_t number;

	if (v->type == TSR_VALUE_TENSOR)
		return take(t, v->tensor.array);
	if (!mapping)
		t->nothers++;
	for (size_t i = 0; mapping && i + 1 < mapping->list.n; i += 2) {
		const struct tsr_value *key = mapping->list.items[i];

		tsr_text_puts(&t->path, at ? "." : "");
		if (key->type == TSR_VALUE_STRING)
			tsr_text_put(&t->path, key->text.bytes, key->text.nbytes);
		else if (tsr_value_get_i64(key, &number))
			tsr_text_printf(&t->path, "%lld", (long long)number);
		if (t->path.failed)
			return tsr_fail_nomem(t->err, t->c->path);
		TSR_TRY(walk(t, mapping->list.items[i + 1]));
		t->path.nbytes = at;
	}
	return TSR_OK;
}

/* All that a value refers to, so that it can be written as it is; its depth is bounded. */
static enum tsr_status take_all(struct taking *t, const struct tsr_value *v)
{
	if (v->type == TSR_VALUE_TENSOR)
		TSR_TRY(take(t, v->tensor.array));
	for (size_t i = 0; i < tsr_value_nchildren(v); i++) {
		if (tsr_value_child(v, i))
			TSR_TRY(take_all(t, tsr_value_child(v, i)));
	}
	return TSR_OK;
}

/* The one value that is a model's state_dict, of what was saved or of a list of it; or NULL. */
static struct tsr_value *find_model(const struct tsr_checkpoint *c)
{
	struct tsr_value *found = NULL;

	for (size_t i = 0; i < c->ntrees; i++) {
		struct tsr_value *root = c->trees[i], *list[] = { root };
		const bool many = root->type == TSR_VALUE_LIST || root->type == TSR_VALUE_TUPLE;
		struct tsr_value *const *items = many ? root->list.items : list;

		for (size_t k = 0; k < (many ? root->list.n : 1); k++) {
			struct tsr_value *model = tsr_state_dict_model(items[k]);

			if (model && found)
				return NULL;
			found = model ? model : found;
		}
	}
	return found;
}

static enum tsr_status take_model(struct taking *t, struct tsr_value *model)
{
	struct tsr_checkpoint *c = t->c;

	TSR_TRY(TSR_NEW(&t->tensor, c->narrays + 1, t->err, c->path));
	for (size_t i = 0; i < c->narrays; i++)
		t->tensor[i] = SIZE_MAX;
	for (size_t i = 0; i < c->ntensors; i++)
		t->tensor[c->tensors[i].plane[0]] = i;
	t->from = c->tensors;
	c->tensors = NULL;
	tsr_build_drop_tensors(c);
	TSR_TRY(t->once ? take_all(t, model) : walk(t, model));
	if (t->nothers)
		TSR_TRY(tsr_build_note(c, t->err,
				       "%s: %zu values of the model that are no tensors are left "
				       "out",
				       c->path, t->nothers));
	c->trees[0] = model;
	c->ntrees = t->once;
	return TSR_OK;
}

static enum tsr_status take_by_name(struct tsr_checkpoint *c, struct tsr_err *err)
{
	TSR_OWNED(free) bool *model = NULL;
	size_t kept = 0;

	TSR_TRY(TSR_NEW(&model, c->ntensors + 1, err, c->path));
	TSR_TRY(tsr_names_model(c, NULL, 0, model, err));
	for (size_t i = 0; i < c->ntensors; i++) {
		if (model[i])
			c->tensors[kept++] = c->tensors[i];
	}
	c->ntensors = kept;
	c->ntrees = 0;
	return TSR_OK;
}

enum tsr_status tsr_model_part(struct tsr_checkpoint *c, enum tsr_container to, struct tsr_err *err)
{
	struct taking t = { .c = c, .err = err };
	struct tsr_value *model = find_model(c);
	enum tsr_status status;

	t.once = to == TSR_CONTAINER_TORCH || to == TSR_CONTAINER_DCP;
	status = model ? take_model(&t, model) : take_by_name(c, err);
	free(t.from);
	free(t.tensor);
	tsr_text_free(&t.path);
	if (status != TSR_OK)
		return status;
	if (!c->ntensors)
		return tsr_fail(err, TSR_E_UNSUPPORTED,
				"%s: found no tensor of a model, expected weights", c->path);
	return tsr_build_index(c, err);
}
