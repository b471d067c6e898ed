/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nesting that was flattened on saving.  A path is a tuple of keys: strings are keys of dicts
 * and ints are indices of lists.  (Keys of dicts that were ints became strings when it was saved.)
 */
#include "base/grow.h"
#include "text/map.h"
#include "text/text_numbers.h"
#include "torch/dcp_read.h"
#include "format/value_walk.h"

/*
 * How many places all lists may have that are built of indices: some, and some for each entry.  Places
 * without an entry are rare, but an index costs a file a few bytes only.
 */
#define PLACES_FREE 65536u
#define PLACES_PER_ENTRY 16u

/* An item of a dict. */
struct item {
	const struct tsr_value *dict;
	size_t key; /* its number */
	size_t at; /* of the value in the dict, behind the key */
};

struct tsr_dcp_tree {
	struct tsr_arena *arena;
	struct tsr_value *root;
	struct tsr_value *none; /* what stands in places to which nothing was put yet */
	struct tsr_map items; /* of struct item, by dict and key */
	struct tsr_text_numbers keys;
	struct tsr_value **copies; /* per number of a key: in the arena */
	size_t nplaces; /* of all lists */
};

/* --- Dicts ---------------------------------------------------------------------------------- */

static bool is_item(const void *item, const void *key)
{
	const struct item *a = item, *b = key;

	return a->dict == b->dict && a->key == b->key;
}

/* The number of a key, of which there is a copy then; false: no memory. */
static bool number_key(struct tsr_dcp_tree *t, const struct tsr_value *key, size_t *ret)
{
	const size_t n = t->keys.n;

	if (!tsr_text_number(&t->keys, key->text.bytes, key->text.nbytes, ret))
		return false;
	if (*ret < n)
		return true;
	if (!tsr_grow(&t->copies, n, sizeof(struct tsr_value *)))
		return false;
	t->copies[n] = tsr_value_text(t->arena, TSR_VALUE_STRING, key->text.bytes,
				      key->text.nbytes);
	return t->copies[n] != NULL;
}

/* Where the value of a key is kept; NULL: no memory. */
static struct tsr_value **value_in_dict(struct tsr_dcp_tree *t, struct tsr_value *dict,
					const struct tsr_value *key)
{
	struct item wanted = { .dict = dict }, *item;
	struct tsr_value *own;
	bool is_new;

	if (!number_key(t, key, &wanted.key))
		return NULL;
	item = tsr_map_put(
		&t->items,
		tsr_map_hash(&t->items, &wanted.key, sizeof(wanted.key), (uint64_t)(uintptr_t)dict),
		&wanted, &is_new);
	if (!item)
		return NULL;
	if (!is_new)
		return &dict->list.items[item->at];
	/* A value of its own, as it was saved; only the bytes are shared. */
	own = tsr_value_new(t->arena, TSR_VALUE_STRING);
	if (!own)
		return NULL;
	own->text = t->copies[wanted.key]->text;
	if (!tsr_value_add(t->arena, dict, own) || !tsr_value_add(t->arena, dict, t->none))
		return NULL;
	wanted.at = dict->list.n - 1;
	*item = wanted;
	return &dict->list.items[wanted.at];
}

/* --- Lists ---------------------------------------------------------------------------------- */

/* Whether lists may grow to hold a place for @index in @list. */
static bool take_places(struct tsr_dcp_tree *t, const struct tsr_dcp_reading *r,
			const struct tsr_value *list, uint64_t index)
{
	const size_t most = PLACES_FREE + PLACES_PER_ENTRY * r->m.nentries;

	if (index < list->list.n)
		return true;
	if (index >= most || index - list->list.n >= most - t->nplaces)
		return false;
	t->nplaces += (size_t)index + 1 - list->list.n;
	return true;
}

static struct tsr_value **value_in_list(struct tsr_dcp_tree *t, struct tsr_value *list, size_t i)
{
	if (i >= list->list.n && !tsr_value_reserve(t->arena, list, i + 1 - list->list.n))
		return NULL;
	while (list->list.n <= i)
		list->list.items[list->list.n++] = t->none;
	return &list->list.items[i];
}

/* --- Paths ---------------------------------------------------------------------------------- */

static struct tsr_value *new_container(struct tsr_dcp_tree *t, enum tsr_value_type type)
{
	struct tsr_value *v = tsr_value_new(t->arena, type);

	if (v)
		v->mark = TSR_MARK_DCP_TREE;
	return v;
}

static enum tsr_value_type container_for(const struct tsr_value *key)
{
	return key->type == TSR_VALUE_STRING ? TSR_VALUE_DICT : TSR_VALUE_LIST;
}

/* Where the value for one key of a container is kept. */
static enum tsr_status descend(struct tsr_dcp_tree *t, struct tsr_dcp_reading *r, const char *fqn,
			       struct tsr_value *in, const struct tsr_value *key,
			       struct tsr_value ***ret)
{
	uint64_t index;

	if (in->mark != TSR_MARK_DCP_TREE || in->type != container_for(key))
		return TSR_DCP_FAIL(r, TSR_E_FORMAT, fqn,
				    "found a path through what another path has as %s",
				    in->mark != TSR_MARK_DCP_TREE ? "a value"
				    : in->type == TSR_VALUE_DICT  ? "a dict"
								  : "a list");
	if (in->type == TSR_VALUE_DICT) {
		*ret = value_in_dict(t, in, key);
	} else {
		if (!tsr_value_get_u64(key, &index) || !take_places(t, r, in, index))
			return TSR_DCP_FAIL(r, TSR_E_LIMIT, fqn,
					    "its path has a list index over the limit of %u places "
					    "in all lists and %u per entry",
					    PLACES_FREE, PLACES_PER_ENTRY);
		*ret = value_in_list(t, in, (size_t)index);
	}
	return *ret ? TSR_OK : tsr_build_nomem(r->c, r->err);
}

static enum tsr_status put(struct tsr_dcp_tree *t, struct tsr_dcp_reading *r, const char *fqn,
			   struct tsr_value *const *keys, size_t nkeys, struct tsr_value *v)
{
	struct tsr_value *in = t->root, **at = NULL;

	for (size_t i = 0; i < nkeys; i++) {
		TSR_TRY(descend(t, r, fqn, in, keys[i], &at));
		if (i + 1 == nkeys)
			break;
		if (*at == t->none) {
			in = new_container(t, container_for(keys[i + 1]));
			if (!in)
				return tsr_build_nomem(r->c, r->err);
			*at = in;
		}
		in = *at;
	}
	if (*at != t->none)
		return TSR_DCP_FAIL(r, TSR_E_FORMAT, fqn,
				    "found a path that another entry has too");
	*at = v;
	return TSR_OK;
}

enum tsr_status tsr_dcp_tree_put(struct tsr_dcp_tree *t, struct tsr_dcp_reading *r,
				 const struct tsr_dcp_entry *e, struct tsr_value *v)
{
	struct tsr_value name = { .type = TSR_VALUE_STRING };
	struct tsr_value *const key = &name;

	if (e->path)
		return put(t, r, e->fqn, e->path->list.items, e->path->list.n, v);
	name.text.bytes = e->fqn;
	name.text.nbytes = strlen(e->fqn);
	return put(t, r, e->fqn, &key, 1, v);
}

enum tsr_status tsr_dcp_tree_finish(struct tsr_dcp_tree *t, struct tsr_dcp_reading *r,
				    struct tsr_value **ret)
{
	*ret = t->root;
	return tsr_value_check(t->root, r->directory, r->err);
}

struct tsr_dcp_tree *tsr_dcp_tree_new(struct tsr_arena *arena)
{
	struct tsr_dcp_tree *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->arena = arena;
	t->items = (struct tsr_map){ .item_nbytes = sizeof(struct item), .same = is_item };
	t->none = tsr_value_new(arena, TSR_VALUE_NONE);
	t->root = new_container(t, TSR_VALUE_DICT);
	if (t->none && t->root)
		return t;
	free(t);
	return NULL;
}

void tsr_dcp_tree_free(struct tsr_dcp_tree *t)
{
	if (!t)
		return;
	tsr_map_free(&t->items);
	tsr_text_numbers_free(&t->keys);
	free(t->copies);
	free(t);
}
