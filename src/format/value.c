/* SPDX-License-Identifier: Apache-2.0 */
/* Python values: making them, asking about them, checking that a graph is bounded. */
#include "format/value.h"

#include <math.h>

#include "base/fail.h"
#include "base/little_endian.h"
#include "base/utf8.h"
#include "text/bytes.h"

/* --- Making values -------------------------------------------------------------------------- */

struct tsr_value *tsr_value_new(struct tsr_arena *a, enum tsr_value_type type)
{
	struct tsr_value *v = tsr_arena_alloc(a, sizeof(*v));

	if (v)
		v->type = type;
	return v;
}

struct tsr_value *tsr_value_text(struct tsr_arena *a, enum tsr_value_type type, const void *bytes,
				 size_t nbytes)
{
	struct tsr_value *v = tsr_value_new(a, type);

	if (!v)
		return NULL;
	v->text.bytes = tsr_arena_copy(a, bytes, nbytes);
	v->text.nbytes = nbytes;
	return v->text.bytes ? v : NULL;
}

struct tsr_value *tsr_value_string(struct tsr_arena *a, const char *s)
{
	return tsr_value_text(a, TSR_VALUE_STRING, s, strlen(s));
}

struct tsr_value *tsr_value_long(struct tsr_arena *a, const void *bytes, size_t nbytes)
{
	const unsigned char *b = bytes;

	/* Drop last bytes that only repeat the sign, and a single 0. */
	while (nbytes > 1 && b[nbytes - 1] == (b[nbytes - 2] & 0x80 ? 0xff : 0))
		nbytes--;
	if (nbytes == 1 && b[0] == 0)
		nbytes = 0;
	return tsr_value_text(a, TSR_VALUE_INT, b, nbytes);
}

struct tsr_value *tsr_value_int(struct tsr_arena *a, int64_t value)
{
	unsigned char bytes[8];

	tsr_put_le(bytes, (uint64_t)value, sizeof(bytes));
	return tsr_value_long(a, bytes, sizeof(bytes));
}

struct tsr_value *tsr_value_float(struct tsr_arena *a, double value)
{
	struct tsr_value *v = tsr_value_new(a, TSR_VALUE_FLOAT);

	if (v)
		memcpy(&v->real, &value, sizeof(value));
	return v;
}

struct tsr_value *tsr_value_bool(struct tsr_arena *a, bool value)
{
	struct tsr_value *v = tsr_value_new(a, TSR_VALUE_BOOL);

	if (v)
		v->boolean = value;
	return v;
}

struct tsr_value *tsr_value_tensor(struct tsr_arena *a, size_t array)
{
	struct tsr_value *v = tsr_value_new(a, TSR_VALUE_TENSOR);

	if (v)
		v->tensor.array = array;
	return v;
}

struct tsr_value *tsr_value_global(struct tsr_arena *a, const char *module, const char *name)
{
	struct tsr_value *v = tsr_value_new(a, TSR_VALUE_GLOBAL);

	if (!v)
		return NULL;
	v->global.module = tsr_arena_string(a, module);
	v->global.name = tsr_arena_string(a, name);
	return v->global.module && v->global.name ? v : NULL;
}

bool tsr_value_reserve(struct tsr_arena *a, struct tsr_value *list, size_t more)
{
	const size_t n = list->list.n, room = list->list.room;
	struct tsr_value **items;
	size_t want, nbytes;

	if (more <= room - n)
		return true;
	if (__builtin_add_overflow(n, more, &want))
		want = SIZE_MAX;
	if (want / 2 < room)
		want = 2 * room; /* room is at most SIZE_MAX / 8 */
	if (__builtin_mul_overflow(want, sizeof(*items), &nbytes))
		nbytes = SIZE_MAX; /* the arena refuses it */
	items = tsr_arena_grow(a, list->list.items, room * sizeof(*items), nbytes);
	if (!items)
		return false;
	list->list.items = items;
	list->list.room = want;
	return true;
}

bool tsr_value_add(struct tsr_arena *a, struct tsr_value *list, struct tsr_value *item)
{
	if (!list || !item ||
	    (list->list.n == list->list.room &&
	     !tsr_value_reserve(a, list, list->list.room ? 1 : 4)))
		return false;
	list->list.items[list->list.n++] = item;
	return true;
}

bool tsr_value_put(struct tsr_arena *a, struct tsr_value *dict, struct tsr_value *key,
		   struct tsr_value *value)
{
	return key && value && tsr_value_add(a, dict, key) && tsr_value_add(a, dict, value);
}

bool tsr_value_put_at(struct tsr_arena *a, struct tsr_value *dict, const char *key,
		      struct tsr_value *value)
{
	return tsr_value_put(a, dict, tsr_value_string(a, key), value);
}

bool tsr_value_put_all(struct tsr_arena *a, struct tsr_value *dict, const struct tsr_value *mapping)
{
	bool ok = true;

	for (size_t i = 0; i < mapping->list.n && ok; i++)
		ok = tsr_value_add(a, dict, mapping->list.items[i]);
	return ok;
}

int tsr_value_compare_texts(const struct tsr_value *a, const struct tsr_value *b)
{
	if (a->type != b->type)
		return a->type < b->type ? -1 : 1;
	return tsr_compare_bytes(a->text.bytes, a->text.nbytes, b->text.bytes, b->text.nbytes);
}

const char *tsr_value_kind(const struct tsr_value *v)
{
	static const char *const kinds[] = {
		[TSR_VALUE_NONE] = "None",	 [TSR_VALUE_BOOL] = "a bool",
		[TSR_VALUE_INT] = "an int",	 [TSR_VALUE_FLOAT] = "a float",
		[TSR_VALUE_STRING] = "a string", [TSR_VALUE_BYTES] = "bytes",
		[TSR_VALUE_LIST] = "a list",	 [TSR_VALUE_TUPLE] = "a tuple",
		[TSR_VALUE_SET] = "a set",	 [TSR_VALUE_FROZENSET] = "a frozenset",
		[TSR_VALUE_DICT] = "a dict",	 [TSR_VALUE_GLOBAL] = "a global",
		[TSR_VALUE_CALL] = "an object",	 [TSR_VALUE_PERSISTENT] = "a persistent object",
		[TSR_VALUE_TENSOR] = "a tensor", [TSR_VALUE_BACK] = "an object that contains it",
	};

	return kinds[v->type];
}

/* --- Questions ------------------------------------------------------------------------------ */

static bool is_type(const struct tsr_value *v, enum tsr_value_type type)
{
	return v && v->type == type;
}

bool tsr_value_is_list(const struct tsr_value *v)
{
	return v && (v->type == TSR_VALUE_LIST || v->type == TSR_VALUE_TUPLE ||
		     v->type == TSR_VALUE_SET || v->type == TSR_VALUE_FROZENSET ||
		     v->type == TSR_VALUE_DICT);
}

bool tsr_value_is_string(const struct tsr_value *v, const char *s)
{
	return is_type(v, TSR_VALUE_STRING) && v->text.nbytes == strlen(s) &&
	       memcmp(v->text.bytes, s, v->text.nbytes) == 0;
}

bool tsr_value_is_global(const struct tsr_value *v, const char *module, const char *name)
{
	return is_type(v, TSR_VALUE_GLOBAL) && strcmp(v->global.module, module) == 0 &&
	       strcmp(v->global.name, name) == 0;
}

static bool is_negative(const struct tsr_value *v)
{
	return v->text.nbytes && (unsigned char)v->text.bytes[v->text.nbytes - 1] & 0x80;
}

/* The low 64 bits, sign-extended. */
static uint64_t low_bits(const struct tsr_value *v)
{
	uint64_t bits = is_negative(v) ? UINT64_MAX : 0;

	for (size_t i = v->text.nbytes < 8 ? v->text.nbytes : 8; i--;)
		bits = bits << 8 | (unsigned char)v->text.bytes[i];
	return bits;
}

bool tsr_value_get_i64(const struct tsr_value *v, int64_t *ret)
{
	if (!is_type(v, TSR_VALUE_INT) || v->text.nbytes > 8)
		return false;
	*ret = (int64_t)low_bits(v);
	return true;
}

bool tsr_value_get_u64(const struct tsr_value *v, uint64_t *ret)
{
	if (!is_type(v, TSR_VALUE_INT) || is_negative(v))
		return false;
	/* As short as possible: a ninth byte of a 64-bit number is there for the sign only. */
	if (v->text.nbytes > 9 || (v->text.nbytes == 9 && v->text.bytes[8]))
		return false;
	*ret = low_bits(v);
	return true;
}

double tsr_value_real(const struct tsr_value *v)
{
	double x = 0;

	if (is_type(v, TSR_VALUE_FLOAT))
		memcpy(&x, &v->real, sizeof(x));
	return x;
}

double tsr_value_number(const struct tsr_value *v)
{
	int64_t whole;

	if (is_type(v, TSR_VALUE_FLOAT))
		return tsr_value_real(v);
	return v && tsr_value_get_i64(v, &whole) ? (double)whole : (double)NAN;
}

bool tsr_value_is_call(const struct tsr_value *v, const char *module, const char *name)
{
	return is_type(v, TSR_VALUE_CALL) && tsr_value_is_global(v->call.callee, module, name);
}

const struct tsr_value *tsr_value_mapping(const struct tsr_value *v)
{
	static const struct tsr_value empty = { .type = TSR_VALUE_DICT };
	const bool is_default = tsr_value_is_call(v, "collections", "defaultdict");
	const struct tsr_value *args, *items, *given;

	if (is_type(v, TSR_VALUE_DICT))
		return v;
	if (!is_default && !tsr_value_is_call(v, "collections", "OrderedDict") &&
	    !tsr_value_is_call(v, "collections", "Counter"))
		return NULL;
	args = v->call.args;
	items = v->call.items;
	if (!is_type(args, TSR_VALUE_TUPLE) || args->list.n > 1 || v->call.kwargs)
		return NULL;
	if (items && items->type != TSR_VALUE_DICT)
		return NULL;
	/* The argument of defaultdict is its factory; that of the others is contents. */
	given = is_default || !args->list.n ? NULL : args->list.items[0];
	if (!given)
		return items ? items : &empty;
	return given->type == TSR_VALUE_DICT && !items ? given : NULL;
}

/* Where a dict has the value of a key, the last of several; NULL: nowhere. */
static struct tsr_value **place_of(const struct tsr_value *dict, const char *key)
{
	for (size_t i = dict ? dict->list.n / 2 : 0; i--;) {
		if (tsr_value_is_string(dict->list.items[2 * i], key))
			return &dict->list.items[2 * i + 1];
	}
	return NULL;
}

struct tsr_value *tsr_value_at(const struct tsr_value *mapping, const char *key)
{
	struct tsr_value **place = place_of(tsr_value_mapping(mapping), key);

	return place ? *place : NULL;
}

bool tsr_value_set_at(struct tsr_arena *a, struct tsr_value *dict, const char *key,
		      struct tsr_value *value)
{
	struct tsr_value **place = place_of(dict, key);

	if (!place)
		return tsr_value_put_at(a, dict, key, value);
	*place = value;
	return value != NULL;
}

/* --- What texts may hold -------------------------------------------------------------------- */

static bool is_surrogate(const char *bytes, size_t nbytes)
{
	return nbytes >= 3 && (unsigned char)bytes[0] == 0xed &&
	       ((unsigned char)bytes[1] & 0xe0) == 0xa0 && ((unsigned char)bytes[2] & 0xc0) == 0x80;
}

/* How many bytes from the start are ASCII, in steps of eight. */
static size_t ascii_run(const char *bytes, size_t nbytes)
{
	size_t n = 0;

	for (; nbytes - n >= 8; n += 8) {
		uint64_t word;

		memcpy(&word, bytes + n, sizeof(word));
		if (word & 0x8080808080808080u)
			break;
	}
	return n;
}

bool tsr_value_is_text(const char *bytes, size_t nbytes)
{
	size_t at = 0;

	while (at < nbytes) {
		uint32_t codepoint;
		size_t len = ascii_run(bytes + at, nbytes - at);

		if (!len)
			len = tsr_utf8_next(bytes + at, nbytes - at, &codepoint);
		if (!len && is_surrogate(bytes + at, nbytes - at))
			len = 3;
		if (!len)
			return false;
		at += len;
	}
	return true;
}

bool tsr_value_is_name(const char *bytes, size_t nbytes)
{
	bool first = true; /* of an identifier */

	if (nbytes > TSR_VALUE_NAME_MAX)
		return false;
	for (size_t i = 0; i < nbytes; i++) {
		const char c = bytes[i], lower = (char)(c | 0x20);
		const bool letter = (lower >= 'a' && lower <= 'z') || c == '_';

		if (!letter && (first || !((c >= '0' && c <= '9') || c == '.')))
			return false;
		first = c == '.';
	}
	return !first;
}

/* --- Walks ---------------------------------------------------------------------------------- */

size_t tsr_value_nchildren(const struct tsr_value *v)
{
	if (tsr_value_is_list(v))
		return v->list.n;
	if (v->type == TSR_VALUE_CALL)
		return TSR_VALUE_CALL_NCHILDREN;
	if (v->type == TSR_VALUE_TENSOR)
		return v->tensor.attributes || v->tensor.wrapper ? 2 : 0;
	return v->type == TSR_VALUE_PERSISTENT;
}

struct tsr_value *tsr_value_child(const struct tsr_value *v, size_t i)
{
	if (v->type == TSR_VALUE_CALL)
		return i == 0	? v->call.callee
		       : i == 1 ? v->call.args
		       : i == 2 ? v->call.kwargs
		       : i == 3 ? v->call.items
				: v->call.state;
	if (v->type == TSR_VALUE_TENSOR)
		return i == 0 ? v->tensor.attributes : v->tensor.wrapper;
	return v->type == TSR_VALUE_PERSISTENT ? v->inner : v->list.items[i];
}

/*
 * The check goes through the graph once, each value after its children, and keeps in `scratch` what
 * a value that was left is worth as a tree: its leaves in the upper 24 bits, its depth in the lower
 * 8.  So it takes time by the size of the graph, however many leaves the tree has.  Values without
 * children need no note.
 */
#define ENTERED UINT32_MAX /* on the path from the root */
#define LEAF (1u << 8 | 1)

_Static_assert(TSR_VALUE_LEAVES_MAX < 1u << 24, "leaves and depth share 32 bits");
_Static_assert(TSR_VALUE_DEPTH_MAX < 255, "leaves and depth share 32 bits");

/* What messages need. */
struct checking {
	const char *where;
	struct tsr_err *err;
};

static enum tsr_status too_deep(const struct checking *c)
{
	return tsr_fail(c->err, TSR_E_LIMIT, "%s: values nested deeper than the limit of %u",
			c->where, TSR_VALUE_DEPTH_MAX);
}

static enum tsr_status check_children(const struct checking *c, const struct tsr_value *v,
				      uint32_t above, uint32_t *worth_ret);

/* @above: how many values are on the path from the root to this one. */
static enum tsr_status check(const struct checking *c, const struct tsr_value *v, uint32_t above,
			     uint32_t *worth_ret)
{
	uint32_t *note = tsr_value_scratch(v);

	if (*note == ENTERED)
		return tsr_fail(c->err, TSR_E_FORMAT, "%s: a value that contains itself", c->where);
	if (above == TSR_VALUE_DEPTH_MAX)
		return too_deep(c);
	*worth_ret = *note ? *note : LEAF;
	if (*note)
		return above + (*note & 0xff) > TSR_VALUE_DEPTH_MAX ? too_deep(c) : TSR_OK;
	if (!tsr_value_nchildren(v))
		return TSR_OK;
	*note = ENTERED;
	TSR_TRY(check_children(c, v, above, worth_ret));
	*note = *worth_ret;
	return TSR_OK;
}

static enum tsr_status check_children(const struct checking *c, const struct tsr_value *v,
				      uint32_t above, uint32_t *worth_ret)
{
	uint32_t leaves = 0, depth = 0;

	for (size_t i = 0; i < tsr_value_nchildren(v); i++) {
		const struct tsr_value *child = tsr_value_child(v, i);
		uint32_t worth = 0;

		if (child)
			TSR_TRY(check(c, child, above + 1, &worth));
		leaves += worth >> 8;
		if (leaves > TSR_VALUE_LEAVES_MAX)
			return tsr_fail(c->err, TSR_E_LIMIT,
					"%s: more values than the limit of %u, shared ones counted "
					"as often as they are reached",
					c->where, TSR_VALUE_LEAVES_MAX);
		if (depth < (worth & 0xff))
			depth = worth & 0xff;
	}
	*worth_ret = leaves << 8 | (depth + 1);
	return TSR_OK;
}

void tsr_value_clear_scratch(const struct tsr_value *root)
{
	const size_t n = tsr_value_nchildren(root);

	*tsr_value_scratch(root) = 0;
	for (size_t i = 0; i < n; i++) {
		const struct tsr_value *child = tsr_value_child(root, i);

		if (child && child->type == TSR_VALUE_BACK)
			*tsr_value_scratch(child->object) = 0;
		if (child && *tsr_value_scratch(child))
			tsr_value_clear_scratch(child);
	}
}

enum tsr_status tsr_value_check(const struct tsr_value *root, const char *where,
				struct tsr_err *err)
{
	const struct checking c = { where, err };
	uint32_t worth;
	const enum tsr_status status = check(&c, root, 0, &worth);

	tsr_value_clear_scratch(root);
	return status;
}
