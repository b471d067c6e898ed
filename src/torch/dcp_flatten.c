/* SPDX-License-Identifier: Apache-2.0 */
/* The entries that torch.distributed.checkpoint makes of a nested state dict. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/utf8.h"
#include "format/value_walk.h"
#include "text/named.h"
#include "text/text.h"
#include "torch/dcp_write.h"
#include "torch/torch_archive.h"

struct flattening {
	struct tsr_dcp_items *out;
	struct tsr_value *keys[TSR_VALUE_DEPTH_MAX]; /* that lead to the current value */
	size_t nkeys;
	bool *reached; /* per array */
	struct tsr_err *err;
};

static enum tsr_status nomem(const struct flattening *f)
{
	return tsr_build_nomem(f->out->c, f->err);
}

/* --- Names ---------------------------------------------------------------------------------- */

static void put_key(struct tsr_text *t, const struct tsr_value *key)
{
	int64_t number = 0;

	if (key->type == TSR_VALUE_STRING)
		tsr_text_put(t, key->text.bytes,
			     key->text.nbytes <= TSR_NAME_MAX ? key->text.nbytes
							      : TSR_NAME_MAX + 1);
	else if (tsr_value_get_i64(key, &number))
		tsr_text_printf(t, "%" PRId64, number);
}

/* The keys joined with dots, in the arena. */
static enum tsr_status join(const struct flattening *f, const char **ret)
{
	struct tsr_text name = { 0 };
	enum tsr_status status = TSR_OK;

	/* Keys may be long and shared: no more of them is copied than shows that there is too much. */
	for (size_t i = 0; i < f->nkeys && name.nbytes <= TSR_NAME_MAX; i++) {
		if (i)
			tsr_text_puts(&name, ".");
		put_key(&name, f->keys[i]);
	}
	tsr_text_puts(&name, "");
	if (name.failed)
		status = tsr_fail_nomem(f->err, f->out->path);
	else if (name.nbytes > TSR_NAME_MAX || !tsr_utf8_is_string(name.bytes, name.nbytes))
		status = tsr_fail(
			f->err, TSR_E_UNSUPPORTED,
			"%s: %.200s: found keys that make no name, expected text of at most "
			"%u bytes",
			f->out->path, name.bytes, (unsigned)TSR_NAME_MAX);
	if (status == TSR_OK) {
		*ret = tsr_arena_copy(f->out->c->arena, name.bytes, name.nbytes);
		status = *ret ? TSR_OK : nomem(f);
	}
	tsr_text_free(&name);
	return status;
}

/* As str() makes a string of a key. */
static enum tsr_status key_of(struct flattening *f, struct tsr_value *key, struct tsr_value **ret)
{
	char described[TSR_VALUE_DESCRIBED], text[32];
	int64_t number;

	*ret = key;
	if (key->type == TSR_VALUE_STRING)
		return TSR_OK;
	if (!tsr_value_get_i64(key, &number))
		return tsr_fail(f->err, TSR_E_UNSUPPORTED,
				"%s: found a dict with %s as a key, expected text or ints",
				f->out->path, tsr_value_describe(key, described));
	snprintf(text, sizeof(text), "%" PRId64, number);
	f->out->nnumbered++;
	*ret = tsr_value_string(f->out->c->arena, text);
	return *ret ? TSR_OK : nomem(f);
}

/* --- Entries -------------------------------------------------------------------------------- */

static void mark_reached(struct flattening *f, const struct tsr_value *v)
{
	const size_t n = tsr_value_nchildren(v);

	if (v->type == TSR_VALUE_TENSOR)
		f->reached[v->tensor.array] = true;
	for (size_t i = 0; i < n; i++) {
		const struct tsr_value *child = tsr_value_child(v, i);

		if (child)
			mark_reached(f, child);
	}
}

static enum tsr_status add_item(struct flattening *f, struct tsr_value *v)
{
	struct tsr_dcp_items *out = f->out;
	struct tsr_value *path = tsr_value_new(out->c->arena, TSR_VALUE_TUPLE);
	struct tsr_dcp_item item = { .path = path, .value = v };
	bool ok = path != NULL;

	TSR_TRY(join(f, &item.fqn));
	for (size_t i = 0; i < f->nkeys && ok; i++)
		ok = tsr_value_add(out->c->arena, path, f->keys[i]);
	if (!ok)
		return nomem(f);
	if (out->n == out->room) {
		const size_t room = out->room ? 2 * out->room : 64;
		struct tsr_dcp_item *items = realloc(out->items, room * sizeof(*items));

		if (!items)
			return tsr_fail_nomem(f->err, out->path);
		out->items = items;
		out->room = room;
	}
	out->items[out->n++] = item;
	if (v->type != TSR_VALUE_TENSOR) {
		mark_reached(f, v);
		return TSR_OK;
	}
	if (!*item.fqn)
		return tsr_fail(
			f->err, TSR_E_UNSUPPORTED,
			"%s: found a tensor with an empty name, expected one that a directory of "
			"torch.distributed.checkpoint can be read with",
			out->path);
	if (v->tensor.wrapper && !tsr_torch_is_whole(v, &out->c->arrays[v->tensor.array]))
		return tsr_fail(
			f->err, TSR_E_UNSUPPORTED,
			"%s: %.200s: a directory of torch.distributed.checkpoint cannot hold "
			"a tensor subclass, or one rank's part of a tensor (%s); a .pt file can",
			out->path, item.fqn, v->tensor.wrapper->list.items[0]->global.name);
	/* A tensor is stored by itself, also one that is a whole DTensor; what its mesh has, too. */
	f->reached[v->tensor.array] = true;
	out->nattributed += v->tensor.attributes && !v->tensor.wrapper;
	return TSR_OK;
}

/* --- Nesting -------------------------------------------------------------------------------- */

/*
 * Whether a value is saved as one Python object: it is no mapping, and no list in which there is a
 * tensor or a mapping.  Tuples are, whatever they hold.
 */
static bool is_terminal(const struct tsr_value *v)
{
	if (tsr_value_mapping(v))
		return false;
	for (size_t i = 0; v->type == TSR_VALUE_LIST && i < v->list.n; i++) {
		const struct tsr_value *item = v->list.items[i];

		if (item->type == TSR_VALUE_TENSOR || !is_terminal(item))
			return false;
	}
	return true;
}

static enum tsr_status flatten(struct flattening *f, struct tsr_value *v);

/* One level down; the depth of values is bounded. */
static enum tsr_status flatten_below(struct flattening *f, struct tsr_value *key,
				     struct tsr_value *v)
{
	enum tsr_status status;

	f->keys[f->nkeys++] = key;
	status = flatten(f, v);
	f->nkeys--;
	return status;
}

static enum tsr_status flatten_mapping(struct flattening *f, const struct tsr_value *mapping)
{
	f->out->nempty += !mapping->list.n && f->nkeys;
	for (size_t i = 0; i + 1 < mapping->list.n; i += 2) {
		struct tsr_value *key = NULL;

		TSR_TRY(key_of(f, mapping->list.items[i], &key));
		TSR_TRY(flatten_below(f, key, mapping->list.items[i + 1]));
	}
	return TSR_OK;
}

static enum tsr_status flatten(struct flattening *f, struct tsr_value *v)
{
	const struct tsr_value *mapping = tsr_value_mapping(v);

	if (mapping)
		return flatten_mapping(f, mapping);
	if (is_terminal(v))
		return add_item(f, v);
	for (size_t i = 0; i < v->list.n; i++) {
		struct tsr_value *key = tsr_value_int(f->out->c->arena, (int64_t)i);

		if (!key)
			return nomem(f);
		TSR_TRY(flatten_below(f, key, v->list.items[i]));
	}
	return TSR_OK;
}

/* --- Roots ---------------------------------------------------------------------------------- */

/* The root of a checkpoint of several inputs is the list of theirs. */
static bool is_list_of_mappings(const struct tsr_value *v)
{
	bool all = v->type == TSR_VALUE_LIST && v->list.n;

	for (size_t i = 0; all && i < v->list.n; i++)
		all = tsr_value_mapping(v->list.items[i]) != NULL;
	return all;
}

static enum tsr_status flatten_root(struct flattening *f, struct tsr_value *root)
{
	char described[TSR_VALUE_DESCRIBED];

	TSR_TRY(tsr_value_check(root, f->out->path, f->err));
	if (tsr_value_mapping(root))
		return flatten(f, root);
	if (!is_list_of_mappings(root))
		return tsr_fail(
			f->err, TSR_E_UNSUPPORTED,
			"%s: what was saved is %s, expected a dict: torch.distributed.checkpoint "
			"holds nothing else",
			f->out->path, tsr_value_describe(root, described));
	for (size_t i = 0; i < root->list.n; i++)
		TSR_TRY(flatten(f, root->list.items[i]));
	return TSR_OK;
}

/* Tensors that were not in what was saved. */
static enum tsr_status add_rest(struct flattening *f)
{
	struct tsr_checkpoint *c = f->out->c;

	for (size_t i = 0; i < c->ntensors; i++) {
		const struct tsr_tensor *t = &c->tensors[i];
		struct tsr_value *name, *tensor;

		if (f->reached[t->plane[0]])
			continue;
		name = tsr_value_string(c->arena, t->name);
		tensor = tsr_value_tensor(c->arena, t->plane[0]);
		if (!name || !tensor)
			return nomem(f);
		TSR_TRY(flatten_below(f, name, tensor));
	}
	return TSR_OK;
}

static enum tsr_status check_names(const struct flattening *f)
{
	const struct tsr_dcp_items *out = f->out;
	struct tsr_named *sorted = calloc(out->n + 1, sizeof(*sorted));
	enum tsr_status status = TSR_OK;

	if (!sorted)
		return tsr_fail_nomem(f->err, out->path);
	for (size_t i = 0; i < out->n; i++)
		sorted[i] = (struct tsr_named){ out->items[i].fqn, i };
	tsr_named_sort(sorted, out->n);
	for (size_t i = 1; i < out->n && status == TSR_OK; i++) {
		if (strcmp(sorted[i - 1].name, sorted[i].name) == 0)
			status = tsr_fail(
				f->err, TSR_E_UNSUPPORTED,
				"%s: %.200s: found two values of this name, expected one: "
				"keys are joined with dots",
				out->path, sorted[i].name);
	}
	free(sorted);
	return status;
}

enum tsr_status tsr_dcp_flatten(struct tsr_checkpoint *c, const char *path,
				struct tsr_dcp_items *items, struct tsr_err *err)
{
	struct flattening *f = calloc(1, sizeof(*f));
	enum tsr_status status = TSR_OK;

	*items = (struct tsr_dcp_items){ .c = c, .path = path };
	if (f)
		*f = (struct flattening){ .out = items,
					  .reached = calloc(c->narrays + 1, sizeof(bool)),
					  .err = err };
	if (!f || !f->reached)
		status = tsr_fail_nomem(err, path);
	for (size_t i = 0; i < c->ntrees && status == TSR_OK; i++)
		status = flatten_root(f, c->trees[i]);
	if (status == TSR_OK)
		status = add_rest(f);
	if (status == TSR_OK)
		status = check_names(f);
	if (f)
		free(f->reached);
	free(f);
	return status;
}
