/* SPDX-License-Identifier: Apache-2.0 */
/* The entries that torch.distributed.checkpoint makes of a nested state dict. */
#include <stdio.h>

#include "base/grow.h"
#include "base/order.h"
#include "base/utf8.h"
#include "format/value_walk.h"
#include "text/named.h"
#include "text/text.h"
#include "torch/dcp_write.h"
#include "torch/torch_archive.h"

/* An entry that the root's attribute lists. */
struct listed {
	const struct tsr_value *path, *fqn;
};

struct flattening {
	struct tsr_dcp_items *out;
	struct tsr_value *keys[TSR_VALUE_DEPTH_MAX]; /* that lead to the current value */
	size_t nkeys;
	bool has_entries; /* the current root says what its entries are */
	struct listed *listed; /* of the current root: sorted by path */
	size_t nlisted;
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

/* The name of an entry, in the arena: @fqn, or the keys joined with dots if that is NULL. */
static enum tsr_status name_entry(const struct flattening *f, const struct tsr_value *fqn,
				  const char **ret)
{
	TSR_SCOPED(tsr_text_free) struct tsr_text name = { 0 };

	if (fqn)
		put_key(&name, fqn);
	/* Keys may be long and shared: no more of them is copied than shows that there is too much. */
	for (size_t i = 0; !fqn && i < f->nkeys && name.nbytes <= TSR_NAME_MAX; i++) {
		if (i)
			tsr_text_puts(&name, ".");
		put_key(&name, f->keys[i]);
	}
	tsr_text_puts(&name, "");
	if (name.failed)
		return tsr_fail_nomem(f->err, f->out->path);
	if (name.nbytes > TSR_NAME_MAX || !tsr_utf8_is_string(name.bytes, name.nbytes))
		return tsr_fail(
			f->err, TSR_E_UNSUPPORTED,
			"%s: %.200s: found keys that make no name, expected text of at most "
			"%u bytes",
			f->out->path, name.bytes, (unsigned)TSR_NAME_MAX);
	*ret = tsr_arena_copy(f->out->c->arena, name.bytes, name.nbytes);
	return *ret ? TSR_OK : nomem(f);
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

/* --- Entries that the root lists -------------------------------------------------------------- */

/* A path that begins with all of the other comes after it. */
static int compare_paths(struct tsr_value *const *a, size_t na, struct tsr_value *const *b,
			 size_t nb)
{
	for (size_t i = 0; i < na && i < nb; i++) {
		const int order = tsr_value_compare_texts(a[i], b[i]);

		if (order)
			return order;
	}
	return (na > nb) - (na < nb);
}

TSR_COMPARE(compare_listed, struct listed,
	    compare_paths(a->path->list.items, a->path->list.n, b->path->list.items,
			  b->path->list.n))

const struct tsr_value *tsr_dcp_attribute(const struct tsr_value *root)
{
	return root->type == TSR_VALUE_CALL ? tsr_value_at(root->call.state, TSR_DCP_ATTRIBUTE)
					    : NULL;
}

static enum tsr_status list_entries(struct flattening *f, const struct tsr_value *attribute)
{
	const struct tsr_value *paths = tsr_value_at(attribute, "planner_data");
	char text[TSR_VALUE_DESCRIBED];

	free(f->listed);
	f->listed = NULL;
	f->nlisted = 0;
	if (!paths || paths->type != TSR_VALUE_DICT)
		return TSR_OK;
	TSR_TRY(TSR_NEW(&f->listed, paths->list.n / 2 + 1, f->err, f->out->path));
	for (size_t i = 0; i + 1 < paths->list.n; i += 2) {
		const struct listed entry = { paths->list.items[i + 1], paths->list.items[i] };

		if (entry.fqn->type != TSR_VALUE_STRING || !tsr_dcp_is_path(entry.path))
			return tsr_fail(f->err, TSR_E_FORMAT,
					"%s: " TSR_DCP_ATTRIBUTE ": found %s, expected the path of "
					"an entry by its name",
					f->out->path, tsr_value_describe(entry.path, text));
		f->listed[f->nlisted++] = entry;
	}
	qsort(f->listed, f->nlisted, sizeof(*f->listed), compare_listed);
	return TSR_OK;
}

enum place {
	UNKNOWN, /* the root does not say what its entries are */
	ENTRY, /* the current value is one */
	ABOVE_ENTRIES,
	NO_ENTRY,
};

/* What the current value is. @fqn: out: the name of an entry that is listed */
static enum place find_place(const struct flattening *f, const struct tsr_value **fqn)
{
	size_t first = 0, end = f->nlisted;
	const struct tsr_value *path;

	if (!f->has_entries || !f->nkeys)
		return UNKNOWN;
	while (first < end) {
		const size_t at = first + (end - first) / 2;

		path = f->listed[at].path;
		if (compare_paths(path->list.items, path->list.n, f->keys, f->nkeys) < 0)
			first = at + 1;
		else
			end = at;
	}
	path = first < f->nlisted ? f->listed[first].path : NULL;
	if (path && path->list.n >= f->nkeys &&
	    compare_paths(path->list.items, f->nkeys, f->keys, f->nkeys) == 0) {
		*fqn = f->listed[first].fqn;
		return path->list.n == f->nkeys ? ENTRY : ABOVE_ENTRIES;
	}
	/* What has no path is in the root, under its name. */
	return f->nkeys == 1 ? ENTRY : NO_ENTRY;
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

static enum tsr_status push_item(struct flattening *f, const struct tsr_dcp_item *item)
{
	struct tsr_dcp_items *out = f->out;

	TSR_TRY(TSR_GROW(&out->items, out->n, f->err, out->path));
	out->items[out->n++] = *item;
	return TSR_OK;
}

/* @fqn: its name, or NULL if the keys make it; @has_path: whether the keys are its path */
static enum tsr_status add_item(struct flattening *f, struct tsr_value *v,
				const struct tsr_value *fqn, bool has_path)
{
	struct tsr_dcp_items *out = f->out;
	struct tsr_value *path = has_path ? tsr_value_new(out->c->arena, TSR_VALUE_TUPLE) : NULL;
	struct tsr_dcp_item item = { .path = path, .value = v };
	bool ok = path || !has_path;

	TSR_TRY(name_entry(f, fqn, &item.fqn));
	for (size_t i = 0; i < f->nkeys && ok && path; i++)
		ok = tsr_value_add(out->c->arena, path, f->keys[i]);
	if (!ok)
		return nomem(f);
	TSR_TRY(push_item(f, &item));
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
	const struct tsr_value *mapping = tsr_value_mapping(v), *fqn = NULL;
	const enum place place = find_place(f, &fqn);

	if (place == ENTRY)
		return add_item(f, v, fqn, fqn != NULL);
	/* A place of a list to which nothing was saved. */
	if (place == NO_ENTRY && v->type == TSR_VALUE_NONE)
		return TSR_OK;
	if (mapping)
		return flatten_mapping(f, mapping);
	if (v->type != TSR_VALUE_LIST || (place != ABOVE_ENTRIES && is_terminal(v)))
		return add_item(f, v, NULL, true);
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

/* Entries that are not among the items, with their bytes. */
static enum tsr_status add_unread(struct flattening *f, const struct tsr_value *attribute)
{
	const struct tsr_value *unread = tsr_value_mapping(tsr_value_at(attribute, "unread"));
	const struct tsr_value *paths = tsr_value_at(attribute, "planner_data");

	for (size_t i = 0; unread && i + 1 < unread->list.n; i += 2) {
		struct tsr_dcp_item item = { .value = unread->list.items[i + 1], .unread = true };

		if (unread->list.items[i]->type != TSR_VALUE_STRING ||
		    item.value->type != TSR_VALUE_TENSOR)
			return tsr_fail(f->err, TSR_E_FORMAT,
					"%s: " TSR_DCP_ATTRIBUTE
					": unread: expected tensors by names of entries",
					f->out->path);
		TSR_TRY(name_entry(f, unread->list.items[i], &item.fqn));
		item.path = tsr_value_at(paths, item.fqn);
		f->reached[item.value->tensor.array] = true;
		TSR_TRY(push_item(f, &item));
	}
	return TSR_OK;
}

static enum tsr_status flatten_dict(struct flattening *f, struct tsr_value *root)
{
	const struct tsr_value *attribute = tsr_dcp_attribute(root);

	if (!f->out->mcore_data)
		f->out->mcore_data = tsr_value_at(attribute, "mcore_data");
	f->has_entries = attribute != NULL;
	TSR_TRY(list_entries(f, attribute));
	TSR_TRY(flatten(f, root));
	return add_unread(f, attribute);
}

static enum tsr_status flatten_root(struct flattening *f, struct tsr_value *root)
{
	char described[TSR_VALUE_DESCRIBED];

	TSR_TRY(tsr_value_check(root, f->out->path, f->err));
	if (tsr_value_mapping(root))
		return flatten_dict(f, root);
	if (!is_list_of_mappings(root))
		return tsr_fail(
			f->err, TSR_E_UNSUPPORTED,
			"%s: what was saved is %s, expected a dict: torch.distributed.checkpoint "
			"holds nothing else",
			f->out->path, tsr_value_describe(root, described));
	for (size_t i = 0; i < root->list.n; i++)
		TSR_TRY(flatten_dict(f, root->list.items[i]));
	return TSR_OK;
}

/* Tensors that were not in what was saved. */
static enum tsr_status add_rest(struct flattening *f)
{
	struct tsr_checkpoint *c = f->out->c;

	f->has_entries = false;
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
	TSR_OWNED(free) struct tsr_named *sorted = NULL;

	TSR_TRY(TSR_NEW(&sorted, out->n + 1, f->err, out->path));
	for (size_t i = 0; i < out->n; i++)
		sorted[i] = (struct tsr_named){ out->items[i].fqn, i };
	tsr_named_sort(sorted, out->n);
	for (size_t i = 1; i < out->n; i++) {
		if (strcmp(sorted[i - 1].name, sorted[i].name) == 0)
			return tsr_fail(f->err, TSR_E_UNSUPPORTED,
					"%s: %.200s: found two values of this name, expected one: "
					"keys are joined with dots",
					out->path, sorted[i].name);
	}
	return TSR_OK;
}

/* @root: what alone is flattened, or NULL */
static enum tsr_status flatten_all(struct flattening *f, struct tsr_value *root)
{
	struct tsr_checkpoint *c = f->out->c;

	if (root)
		return flatten_root(f, root);
	for (size_t i = 0; i < c->ntrees; i++)
		TSR_TRY(flatten_root(f, c->trees[i]));
	TSR_TRY(add_rest(f));
	return check_names(f);
}

enum tsr_status tsr_dcp_flatten(struct tsr_checkpoint *c, struct tsr_value *root, const char *path,
				struct tsr_dcp_items *items, struct tsr_err *err)
{
	TSR_OWNED(free) struct flattening *f = NULL;
	TSR_OWNED(free) bool *reached = NULL;
	enum tsr_status status;

	*items = (struct tsr_dcp_items){ .c = c, .path = path };
	TSR_TRY(TSR_NEW(&f, 1, err, path));
	TSR_TRY(TSR_NEW(&reached, c->narrays + 1, err, path));
	*f = (struct flattening){ .out = items, .reached = reached, .err = err };
	status = flatten_all(f, root);
	free(f->listed);
	return status;
}
