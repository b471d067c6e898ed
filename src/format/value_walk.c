/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over Python values, and what messages say about them. */
#include "format/value_walk.h"

#include <stdio.h>
#include <string.h>

#include "text/map.h"
#include "base/utf8.h"

/* --- The walk ------------------------------------------------------------------------------- */

/* The next child of a value on the path that was not visited, or NULL. */
static struct tsr_value *next_child(struct tsr_value_walk *w)
{
	while (w->n) {
		struct tsr_value *v = w->path[w->n - 1].v;

		while (w->path[w->n - 1].next < tsr_value_nchildren(v)) {
			struct tsr_value *child = tsr_value_child(v, w->path[w->n - 1].next++);

			if (child && child->mark != w->mark)
				return child;
		}
		w->n--;
	}
	return NULL;
}

struct tsr_value *tsr_value_walk_next(struct tsr_value_walk *w)
{
	struct tsr_value *v = w->root ? w->root : next_child(w);

	w->root = NULL;
	/* No path is longer, since the value was checked. */
	if (!v || w->n == TSR_VALUE_DEPTH_MAX)
		return NULL;
	v->mark = w->mark;
	w->path[w->n].v = v;
	w->path[w->n++].next = 0;
	return v;
}

/* --- Paths ---------------------------------------------------------------------------------- */

/* How much of one key is shown. */
#define KEY_NBYTES 100u

/* A text being written into a buffer, cut to fit. */
struct line {
	char *bytes;
	size_t n, room; /* room: without the NUL */
};

static void put(struct line *l, const char *bytes, size_t nbytes)
{
	if (nbytes > l->room - l->n)
		return;
	memcpy(l->bytes + l->n, bytes, nbytes);
	l->n += nbytes;
}

/* Text from a file, with '?' for what is not printable. */
static void put_text(struct line *l, const char *bytes, size_t nbytes)
{
	for (size_t at = 0, len; at < nbytes; at += len) {
		uint32_t codepoint;
		bool plain;

		len = tsr_utf8_next(bytes + at, nbytes - at, &codepoint);
		plain = len && codepoint >= 0x20 && (codepoint < 0x7f || codepoint >= 0xa0);
		if (at + len > KEY_NBYTES) {
			put(l, "...", 3);
			return;
		}
		put(l, plain ? bytes + at : "?", plain ? len : 1);
		len = len ? len : 1;
	}
}

static void put_number(struct line *l, long long number)
{
	char digits[24];

	put(l, digits, (size_t)snprintf(digits, sizeof(digits), "%lld", number));
}

static void put_key(struct line *l, const struct tsr_value *key)
{
	int64_t number;

	if (key->type == TSR_VALUE_STRING)
		put_text(l, key->text.bytes, key->text.nbytes);
	else if (tsr_value_get_i64(key, &number))
		put_number(l, number);
	else if (key->type == TSR_VALUE_BOOL)
		put(l, key->boolean ? "True" : "False", key->boolean ? 4 : 5);
	else
		put(l, "?", 1);
}

void tsr_value_walk_path(const struct tsr_value_walk *w, char *out, size_t nbytes)
{
	struct line l = { out, 0, nbytes - 1 };

	for (size_t i = 0; i + 1 < w->n; i++) {
		const struct tsr_value *v = w->path[i].v;
		const size_t child = w->path[i].next - 1;

		if (!tsr_value_is_list(v))
			continue;
		if (l.n)
			put(&l, ".", 1);
		if (v->type == TSR_VALUE_DICT)
			put_key(&l, v->list.items[child & ~(size_t)1]);
		else
			put_number(&l, (long long)child);
	}
	out[l.n] = '\0';
}

/* --- Keys ----------------------------------------------------------------------------------- */

/* The whole number that a key is to Python: 1, True and 1.0 are one key. */
static bool is_whole(const struct tsr_value *key, int64_t *ret)
{
	const double real = tsr_value_real(key);

	if (key->type == TSR_VALUE_BOOL) {
		*ret = key->boolean;
		return true;
	}
	if (key->type == TSR_VALUE_FLOAT && real >= -0x1p63 && real < 0x1p63) {
		*ret = (int64_t)real;
		return (double)*ret == real;
	}
	return tsr_value_get_i64(key, ret);
}

static bool has_text(const struct tsr_value *key)
{
	return key->type == TSR_VALUE_STRING || key->type == TSR_VALUE_BYTES ||
	       key->type == TSR_VALUE_INT;
}

static bool is_same_key(const void *item, const void *key)
{
	const struct tsr_value *a = *(const struct tsr_value *const *)item, *b = key;
	int64_t x = 0, y = 0;
	const bool whole = is_whole(a, &x);

	if (whole != is_whole(b, &y) || (!whole && a->type != b->type))
		return false;
	if (whole)
		return x == y;
	if (a->type == TSR_VALUE_FLOAT)
		return tsr_value_real(a) == tsr_value_real(b);
	return a->text.nbytes == b->text.nbytes &&
	       memcmp(a->text.bytes, b->text.bytes, a->text.nbytes) == 0;
}

static bool is_comparable(const struct tsr_value *key)
{
	return has_text(key) || key->type == TSR_VALUE_BOOL || key->type == TSR_VALUE_FLOAT;
}

static uint64_t hash_key(struct tsr_map *keys, const struct tsr_value *key)
{
	int64_t number;

	if (is_whole(key, &number))
		return tsr_map_hash(keys, &number, sizeof(number), TSR_VALUE_INT);
	if (key->type == TSR_VALUE_FLOAT)
		return tsr_map_hash(keys, &key->real, sizeof(key->real), key->type);
	return tsr_map_hash(keys, key->text.bytes, key->text.nbytes, key->type);
}

uint64_t tsr_value_keys_nbytes(const struct tsr_value *dict)
{
	uint64_t nbytes = 0;

	for (size_t i = 0; i + 1 < dict->list.n; i += 2) {
		if (has_text(dict->list.items[i]))
			nbytes += dict->list.items[i]->text.nbytes;
	}
	return nbytes;
}

bool tsr_value_find_twin(const struct tsr_value *dict, const struct tsr_value **ret)
{
	TSR_SCOPED(tsr_map_free)
	struct tsr_map keys = { .item_nbytes = sizeof(dict), .same = is_same_key };
	const struct tsr_value **item = ret;

	*ret = NULL;
	for (size_t i = 0; i + 1 < dict->list.n && item && !*ret; i += 2) {
		const struct tsr_value *key = dict->list.items[i];
		bool is_new;

		if (!is_comparable(key))
			continue;
		item = tsr_map_put(&keys, hash_key(&keys, key), key, &is_new);
		if (item && is_new)
			*item = key;
		else
			*ret = key;
	}
	return item != NULL;
}

/* --- Keys of two ---------------------------------------------------------------------------- */

/* A key, and which one it is; first, as is_same_key() takes a pointer to a value. */
struct numbered {
	const struct tsr_value *key;
	size_t number;
};

/* Those that are in the same places, which most are. */
static bool pair_in_order(const struct tsr_value *a, const struct tsr_value *b, size_t step,
			  size_t *in_b)
{
	for (size_t i = 0; i < a->list.n / step; i++) {
		const struct tsr_value *key = a->list.items[i * step], *other;

		other = i < b->list.n / step ? b->list.items[i * step] : NULL;
		if (!other || is_comparable(key) != is_comparable(other) ||
		    (is_comparable(key) && !is_same_key(&key, other)))
			return false;
		in_b[i] = i;
	}
	return true;
}

/* Room for a key of one side, or what the other side put there. */
static struct numbered *room_for(struct tsr_map *keys, const struct tsr_value *key, bool *is_new)
{
	struct numbered *item = tsr_map_put(keys, hash_key(keys, key), key, is_new);

	if (item && *is_new)
		*item = (struct numbered){ key, SIZE_MAX };
	return item;
}

bool tsr_value_pair_keys(const struct tsr_value *a, const struct tsr_value *b, size_t step,
			 size_t *in_b_ret)
{
	TSR_SCOPED(tsr_map_free)
	struct tsr_map keys = { .item_nbytes = sizeof(struct numbered), .same = is_same_key };
	const size_t na = a->list.n / step, nb = b->list.n / step;
	struct numbered *item = NULL;
	size_t other = 0; /* among the keys of @b that are in no map */
	bool is_new, ok = true;

	if (pair_in_order(a, b, step, in_b_ret))
		return true;
	for (size_t k = 0; k < nb && ok; k++) {
		if (!is_comparable(b->list.items[k * step]))
			continue;
		item = room_for(&keys, b->list.items[k * step], &is_new);
		ok = item != NULL;
		if (ok && is_new)
			item->number = k;
	}
	for (size_t i = 0; i < na && ok; i++) {
		if (is_comparable(a->list.items[i * step])) {
			item = room_for(&keys, a->list.items[i * step], &is_new);
			ok = item != NULL;
			in_b_ret[i] = ok ? item->number : SIZE_MAX;
			continue;
		}
		while (other < nb && is_comparable(b->list.items[other * step]))
			other++;
		in_b_ret[i] = other < nb ? other++ : SIZE_MAX;
	}
	return ok;
}

/* --- Words ---------------------------------------------------------------------------------- */

const char *tsr_value_describe(const struct tsr_value *v, char out[TSR_VALUE_DESCRIBED])
{
	struct line l = { out, 0, TSR_VALUE_DESCRIBED - 1 };
	const struct tsr_value *global = v;
	int64_t number;

	if (v->type == TSR_VALUE_STRING) {
		put(&l, "\"", 1);
		put_text(&l, v->text.bytes, v->text.nbytes);
		put(&l, "\"", 1);
		out[l.n] = '\0';
		return out;
	}
	if (v->type == TSR_VALUE_BOOL)
		return v->boolean ? "True" : "False";
	if (tsr_value_get_i64(v, &number)) {
		snprintf(out, TSR_VALUE_DESCRIBED, "%lld", (long long)number);
		return out;
	}
	if (v->type == TSR_VALUE_CALL)
		global = v->call.callee;
	if (v->type == TSR_VALUE_PERSISTENT)
		return "a storage";
	if (global->type != TSR_VALUE_GLOBAL)
		return v->type == TSR_VALUE_INT ? "a large int" : tsr_value_kind(v);
	snprintf(out, TSR_VALUE_DESCRIBED, "%s%s.%s", v == global ? "" : "a call of ",
		 global->global.module, global->global.name);
	return out;
}
