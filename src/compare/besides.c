/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what two checkpoints have besides tensors: one walk over two graphs of values. */
#include "compare/besides.h"

#include <stdio.h>

#include "base/grow.h"
#include "ckpt/build.h"
#include "format/value_walk.h"
#include "torch/torch_write.h"

struct comparing {
	struct tsr_checkpoint *side[2];
	const struct tsr_tensor **by_array[2]; /* the tensor that has an array, or NULL */
	struct tsr_value_walk path; /* of keys, to the values that are compared */
	/*
	 * Values with children that were met: `scratch` of each is its number here, from 1 on, and those
	 * that were compared are in one class.  So no pair is compared twice, and time is linear.
	 */
	struct met {
		const struct tsr_value *v;
		size_t parent;
	} * met;
	size_t nmet;
	struct tsr_besides *found;
	bool nomem;
};

/* --- Classes ------------------------------------------------------------------------------------ */

/* The number that stands for the class of a value; 0 when out of memory. */
static size_t class_of(struct comparing *w, const struct tsr_value *v)
{
	size_t i = *tsr_value_scratch(v);

	if (!i) {
		w->nomem = w->nomem || w->nmet == UINT32_MAX ||
			   !tsr_grow(&w->met, w->nmet, sizeof(*w->met));
		if (w->nomem)
			return 0;
		i = ++w->nmet;
		w->met[i - 1] = (struct met){ v, i };
		*tsr_value_scratch(v) = (uint32_t)i;
	}
	while (w->met[i - 1].parent != i) {
		w->met[i - 1].parent = w->met[w->met[i - 1].parent - 1].parent;
		i = w->met[i - 1].parent;
	}
	return i;
}

/* Put two values into one class; false if they are, so that they were compared, or without memory. */
static bool join(struct comparing *w, const struct tsr_value *a, const struct tsr_value *b)
{
	const size_t i = class_of(w, a), k = i ? class_of(w, b) : 0;

	if (!k || i == k)
		return false;
	w->met[k - 1].parent = i;
	return true;
}

/* --- What differs ------------------------------------------------------------------------------- */

static const struct tsr_tensor *tensor_of(const struct comparing *w, int side,
					  const struct tsr_value *v)
{
	const bool is = v && v->type == TSR_VALUE_TENSOR &&
			v->tensor.array < w->side[side]->narrays;

	return is ? w->by_array[side][v->tensor.array] : NULL;
}

/* A text that lives as long as the first checkpoint. */
static const char *keep(struct comparing *w, const char *text)
{
	const char *copy = tsr_arena_string(w->side[0]->arena, text);

	w->nomem = w->nomem || !copy;
	return copy;
}

static const char *text_of(struct comparing *w, int side, const struct tsr_value *v)
{
	const struct tsr_tensor *t = tensor_of(w, side, v);
	char text[TSR_VALUE_TEXT];

	if (!v)
		return NULL;
	if (t)
		tsr_value_tensor_text(v, t, w->side[side]->arrays[v->tensor.array].stride, text);
	else
		tsr_value_text_of(v, text);
	return keep(w, text);
}

/* NULL: that side has none. */
static void differ(struct comparing *w, const struct tsr_value *a, const struct tsr_value *b)
{
	struct tsr_besides *f = w->found;
	char where[TSR_VALUE_DESCRIBED];

	f->ndiffering++;
	if (f->nlisted == TSR_VALUES_LISTED)
		return;
	/* The path ends with the value itself. */
	w->path.n++;
	tsr_value_walk_path(&w->path, where, sizeof(where));
	w->path.n--;
	f->list[f->nlisted++] = (struct tsr_value_difference){
		.where = keep(w, *where ? where : "the root"),
		.a = text_of(w, 0, a),
		.b = text_of(w, 1, b),
	};
}

/* Something that one side lacks; a tensor that it lacks everywhere is a difference of tensors already. */
static void differ_alone(struct comparing *w, const struct tsr_value *a, const struct tsr_value *b)
{
	const struct tsr_tensor *t = a ? tensor_of(w, 0, a) : tensor_of(w, 1, b);

	if (!t || tsr_checkpoint_find(w->side[a ? 1 : 0], t->name))
		differ(w, a, b);
}

/* --- Leaves ------------------------------------------------------------------------------------- */

static bool same_text(const struct tsr_value *a, const struct tsr_value *b)
{
	return a->text.nbytes == b->text.nbytes &&
	       memcmp(a->text.bytes, b->text.bytes, a->text.nbytes) == 0;
}

static bool same_strides(const struct tsr_array *a, const struct tsr_array *b)
{
	if (a->rank != b->rank || !a->stride != !b->stride)
		return a->rank != b->rank; /* which is a difference of tensors */
	return !a->stride || memcmp(a->stride, b->stride, a->rank * sizeof(*a->stride)) == 0;
}

/* Whether one side has the tensor of the other side's place somewhere else. */
static bool is_elsewhere(const struct tsr_checkpoint *c, const struct tsr_tensor *here,
			 const struct tsr_tensor *other)
{
	const struct tsr_tensor *t = tsr_checkpoint_find(c, other->name);

	return t && t != here;
}

static bool same_tensor(const struct comparing *w, const struct tsr_value *a,
			const struct tsr_value *b)
{
	const struct tsr_tensor *ta = tensor_of(w, 0, a), *tb = tensor_of(w, 1, b);

	if (a->tensor.requires_grad != b->tensor.requires_grad ||
	    a->tensor.parameter != b->tensor.parameter)
		return false;
	if (!ta || !tb)
		return true;
	return same_strides(&w->side[0]->arrays[a->tensor.array],
			    &w->side[1]->arrays[b->tensor.array]) &&
	       !is_elsewhere(w->side[0], ta, tb) && !is_elsewhere(w->side[1], tb, ta);
}

/* Whether two values of one type are the same, apart from their children. */
static bool same_value(struct comparing *w, const struct tsr_value *a, const struct tsr_value *b)
{
	switch (a->type) {
	case TSR_VALUE_BOOL:
		return a->boolean == b->boolean;
	case TSR_VALUE_FLOAT:
		return a->real == b->real;
	case TSR_VALUE_INT:
	case TSR_VALUE_STRING:
	case TSR_VALUE_BYTES:
		return same_text(a, b);
	case TSR_VALUE_LIST:
	case TSR_VALUE_TUPLE:
		return a->list.n == b->list.n;
	case TSR_VALUE_GLOBAL:
		return strcmp(a->global.module, b->global.module) == 0 &&
		       strcmp(a->global.name, b->global.name) == 0;
	case TSR_VALUE_CALL:
		return a->call.is_new == b->call.is_new;
	case TSR_VALUE_TENSOR:
		return same_tensor(w, a, b);
	case TSR_VALUE_BACK:
		return class_of(w, a->object) == class_of(w, b->object);
	case TSR_VALUE_NONE:
	case TSR_VALUE_SET:
	case TSR_VALUE_FROZENSET:
	case TSR_VALUE_DICT:
	case TSR_VALUE_PERSISTENT:
		break;
	}
	return true;
}

/* --- The walk ----------------------------------------------------------------------------------- */

static void compare(struct comparing *w, const struct tsr_value *a, const struct tsr_value *b);

/* A level of the path, of which child @i is looked at. */
static void look_at(struct comparing *w, const struct tsr_value *v, size_t i)
{
	w->path.path[w->path.n - 1].v = (struct tsr_value *)(uintptr_t)v;
	w->path.path[w->path.n - 1].next = i + 1;
}

/* Items of a set, or those of a dict: a key and its value. */
static void compare_keys(struct comparing *w, const struct tsr_value *a, const struct tsr_value *b)
{
	const size_t step = a->type == TSR_VALUE_DICT ? 2 : 1;
	const size_t na = a->list.n / step, nb = b->list.n / step;
	TSR_OWNED(free) size_t *in_b = malloc((na + 1) * sizeof(*in_b));
	TSR_OWNED(free) bool *hit = calloc(nb + 1, sizeof(*hit));

	if (!in_b || !hit || !tsr_value_pair_keys(a, b, step, in_b))
		w->nomem = true;
	for (size_t i = 0; i < na && !w->nomem; i++) {
		const size_t k = in_b[i], at = i * step;
		const struct tsr_value *value = a->list.items[at + step - 1];

		look_at(w, a, at);
		if (k == SIZE_MAX) {
			differ_alone(w, value, NULL);
			continue;
		}
		hit[k] = true;
		compare(w, a->list.items[at], b->list.items[k * step]);
		if (step == 2)
			compare(w, value, b->list.items[k * step + 1]);
	}
	for (size_t k = 0; k < nb && !w->nomem; k++) {
		look_at(w, b, k * step);
		if (!hit[k])
			differ_alone(w, NULL, b->list.items[k * step + step - 1]);
	}
}

static void compare_children(struct comparing *w, const struct tsr_value *a,
			     const struct tsr_value *b)
{
	w->path.n++;
	if (a->type == TSR_VALUE_DICT || a->type == TSR_VALUE_SET ||
	    a->type == TSR_VALUE_FROZENSET) {
		compare_keys(w, a, b);
	} else {
		const size_t na = tsr_value_nchildren(a), nb = tsr_value_nchildren(b);

		for (size_t i = 0; i < (na > nb ? na : nb); i++) {
			look_at(w, a, i);
			compare(w, i < na ? tsr_value_child(a, i) : NULL,
				i < nb ? tsr_value_child(b, i) : NULL);
		}
	}
	w->path.n--;
}

static void compare(struct comparing *w, const struct tsr_value *a, const struct tsr_value *b)
{
	if ((!a && !b) || w->nomem)
		return;
	if (!a || !b || a->type != b->type) {
		differ(w, a, b);
		return;
	}
	if (!tsr_value_nchildren(a) && !tsr_value_nchildren(b)) {
		if (!same_value(w, a, b))
			differ(w, a, b);
		return;
	}
	if (!join(w, a, b))
		return;
	/* What is deeper than any tree may be is not known to be the same. */
	if (!same_value(w, a, b) || w->path.n == TSR_VALUE_DEPTH_MAX - 1)
		differ(w, a, b);
	else
		compare_children(w, a, b);
}

/* --- Checkpoints -------------------------------------------------------------------------------- */

static bool find_arrays(struct comparing *w, int side)
{
	const struct tsr_checkpoint *c = w->side[side];

	w->by_array[side] = calloc(c->narrays + 1, sizeof(struct tsr_tensor *));
	for (size_t i = 0; w->by_array[side] && i < c->ntensors; i++)
		w->by_array[side][c->tensors[i].plane[0]] = &c->tensors[i];
	return w->by_array[side] != NULL;
}

/* The metadata as a dict in another one, under the name that it has in the file. */
static struct tsr_value *meta_root(const struct tsr_checkpoint *c)
{
	struct tsr_value *root = tsr_value_new(c->arena, TSR_VALUE_DICT);
	struct tsr_value *dict = tsr_value_new(c->arena, TSR_VALUE_DICT);
	bool ok = root &&
		  tsr_value_put(c->arena, root, tsr_value_string(c->arena, "__metadata__"), dict);

	for (size_t i = 0; ok && i < c->nmeta; i++) {
		if (strcmp(c->meta[i].key, TSR_GENERATION_KEY) != 0)
			ok = tsr_value_put(c->arena, dict,
					   tsr_value_string(c->arena, c->meta[i].key),
					   tsr_value_string(c->arena, c->meta[i].value));
	}
	return ok ? root : NULL;
}

/* There keys are texts, and kinds of mappings are not told apart. */
static bool is_dcp(const struct tsr_checkpoint *c)
{
	return c->container == TSR_CONTAINER_DCP;
}

static enum tsr_status compare_all(struct comparing *w, struct tsr_err *err)
{
	struct tsr_checkpoint *a = w->side[0], *b = w->side[1];
	struct tsr_value *root[2] = { NULL, NULL }, *meta[2] = { NULL, NULL };

	TSR_TRY(tsr_torch_root(a, &root[0], err));
	TSR_TRY(tsr_torch_root(b, &root[1], err));
	if (root[0] && root[1] && is_dcp(a) == is_dcp(b))
		compare(w, root[0], root[1]);
	else if ((root[0] && !tsr_torch_is_flat(root[0])) ||
		 (root[1] && !tsr_torch_is_flat(root[1])))
		w->found->not_compared = !root[0]   ? "A has nothing else"
					 : !root[1] ? "B has nothing else"
						    : "keys of dcp are other ones";
	if (a->container != TSR_CONTAINER_SAFETENSORS || b->container != TSR_CONTAINER_SAFETENSORS)
		return TSR_OK;
	for (int i = 0; i < 2; i++) {
		meta[i] = meta_root(w->side[i]);
		if (!meta[i])
			return tsr_build_nomem(w->side[i], err);
	}
	compare(w, meta[0], meta[1]);
	return TSR_OK;
}

enum tsr_status tsr_besides_compare(struct tsr_checkpoint *a, struct tsr_checkpoint *b,
				    struct tsr_besides *ret, struct tsr_err *err)
{
	struct comparing *w = NULL;
	enum tsr_status status = TSR_OK;

	TSR_TRY(TSR_NEW(&w, 1, err, a->path));
	w->side[0] = a;
	w->side[1] = b;
	w->found = ret;
	w->nomem = !find_arrays(w, 0) || !find_arrays(w, 1);
	if (!w->nomem)
		status = compare_all(w, err);
	if (status == TSR_OK && w->nomem)
		status = tsr_fail_nomem(err, a->path);
	for (size_t i = 0; i < w->nmet; i++)
		*tsr_value_scratch(w->met[i].v) = 0;
	free(w->met);
	free(w->by_array[0]);
	free(w->by_array[1]);
	free(w);
	return status;
}

const char *tsr_besides_first(const struct tsr_besides *b, char text[TSR_BESIDES_TEXT])
{
	const struct tsr_value_difference *d = &b->list[0];

	snprintf(text, TSR_BESIDES_TEXT,
		 "besides tensors %" PRIu64 " value%s, first %.100s: %.80s, %.80s", b->ndiffering,
		 b->ndiffering == 1 ? " differs" : "s differ", d->where, d->a ? d->a : "absent",
		 d->b ? d->b : "absent");
	return text;
}
