/* SPDX-License-Identifier: Apache-2.0 */
/* Python values, as a pickle describes them. */
#ifndef TSR_FORMAT_VALUE_H
#define TSR_FORMAT_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "tersor/status.h"

/*
 * A Python value as a pickle describes it.  Inert: what a pickle would call stands here as a CALL
 * and is never carried out.  Values form a directed graph, since a value may be shared; once
 * tsr_value_check() has passed it has no cycles and recursion over it is bounded.  An object whose
 * state leads back to it has a BACK in that place.
 */
enum tsr_value_type {
	TSR_VALUE_NONE,
	TSR_VALUE_BOOL, /* boolean */
	TSR_VALUE_INT, /* text: two's complement, little-endian, as short as possible; 0 has none */
	TSR_VALUE_FLOAT, /* real */
	TSR_VALUE_STRING, /* text: UTF-8 in which lone surrogates may be encoded too */
	TSR_VALUE_BYTES, /* text */
	TSR_VALUE_LIST, /* list */
	TSR_VALUE_TUPLE, /* list */
	TSR_VALUE_SET, /* list */
	TSR_VALUE_FROZENSET, /* list */
	TSR_VALUE_DICT, /* list: key, value, key, value, ... */
	TSR_VALUE_GLOBAL, /* global */
	TSR_VALUE_CALL, /* call: REDUCE, NEWOBJ and NEWOBJ_EX */
	TSR_VALUE_PERSISTENT, /* inner: the id that BINPERSID took */
	TSR_VALUE_TENSOR, /* tensor: set by a pass over the graph, never by a pickle */
	TSR_VALUE_BACK, /* object: a CALL that contains this place in its state; see value_cycles.c */
};

struct tsr_value {
	enum tsr_value_type type;
	uint32_t mark; /* for passes that visit shared values once; 0 in a new value */
	uint32_t scratch; /* used during a walk, even over a const graph; 0 otherwise */
	union {
		bool boolean;
		uint64_t real; /* bits of a binary64 */
		struct {
			const char *bytes; /* NUL-terminated, though they may hold NULs too */
			size_t nbytes;
		} text;
		struct {
			struct tsr_value **items;
			size_t n, room;
		} list;
		struct {
			const char *module, *name; /* ASCII identifiers with dots */
		} global;
		struct {
			struct tsr_value *callee; /* usually a GLOBAL */
			struct tsr_value *args; /* a TUPLE, if a pickle made it */
			struct tsr_value *kwargs; /* DICT of NEWOBJ_EX, or NULL */
			bool is_new; /* NEWOBJ: callee.__new__(callee, *args, **kwargs) */
			struct tsr_value *state; /* what BUILD gave it, or NULL */
			/* DICT or LIST of what was set or appended, or NULL */
			struct tsr_value *items;
		} call;
		struct tsr_value *inner;
		struct {
			size_t array; /* index into the checkpoint's arrays */
			bool requires_grad;
			bool parameter; /* wrapped in torch.nn.Parameter */
			struct tsr_value *attributes; /* DICT of its own in Python, or NULL */
			/*
			 * NULL, or the TUPLE that makes a subclass of tensor around @attributes,
			 * one of which has the array; a GLOBAL of the class comes first.
			 */
			struct tsr_value *wrapper;
		} tensor;
		struct tsr_value *object; /* not a child */
	};
};

/* New values; NULL when the arena has no more room.  Text is copied. */
struct tsr_value *tsr_value_new(struct tsr_arena *a, enum tsr_value_type type);
struct tsr_value *tsr_value_text(struct tsr_arena *a, enum tsr_value_type type, const void *bytes,
				 size_t nbytes);
struct tsr_value *tsr_value_string(struct tsr_arena *a, const char *s);
struct tsr_value *tsr_value_int(struct tsr_arena *a, int64_t value);
struct tsr_value *tsr_value_float(struct tsr_arena *a, double value);
struct tsr_value *tsr_value_bool(struct tsr_arena *a, bool value);
struct tsr_value *tsr_value_tensor(struct tsr_arena *a, size_t array);
struct tsr_value *tsr_value_global(struct tsr_arena *a, const char *module, const char *name);

/* An INT from two's complement, little-endian, of any length: kept as short as possible. */
struct tsr_value *tsr_value_long(struct tsr_arena *a, const void *bytes, size_t nbytes);

/*
 * Append to a LIST, TUPLE, SET or (key, then value) DICT; false when the arena has no more room, and if
 * either value is NULL, for which there was none.
 */
bool tsr_value_add(struct tsr_arena *a, struct tsr_value *list, struct tsr_value *item);

/* Append to a DICT; @key may be NULL, too. */
bool tsr_value_put(struct tsr_arena *a, struct tsr_value *dict, struct tsr_value *key,
		   struct tsr_value *value);

/* The same under a string, and all items of a DICT. */
bool tsr_value_put_at(struct tsr_arena *a, struct tsr_value *dict, const char *key,
		      struct tsr_value *value);
bool tsr_value_set_at(struct tsr_arena *a, struct tsr_value *dict, const char *key,
		      struct tsr_value *value); /* in place of what the key has */
bool tsr_value_put_all(struct tsr_arena *a, struct tsr_value *dict,
		       const struct tsr_value *mapping);

/* Make room for @more items at once; false when the arena has no more room. */
bool tsr_value_reserve(struct tsr_arena *a, struct tsr_value *list, size_t more);

/* The order of STRINGs and INTs, which are only equal within their type. */
int tsr_value_compare_texts(const struct tsr_value *a, const struct tsr_value *b);

/* Whether the value uses its list member. */
bool tsr_value_is_list(const struct tsr_value *v);

/* What to call a value in a message: "a list". */
const char *tsr_value_kind(const struct tsr_value *v);

/* Questions; each is false or NULL if the value is of another type, or NULL. */
bool tsr_value_is_string(const struct tsr_value *v, const char *s);
bool tsr_value_is_global(const struct tsr_value *v, const char *module, const char *name);
bool tsr_value_get_i64(const struct tsr_value *v, int64_t *ret); /* false if it does not fit */
bool tsr_value_get_u64(const struct tsr_value *v, uint64_t *ret); /* false if negative or too big */
double tsr_value_real(const struct tsr_value *v); /* of a FLOAT */
double tsr_value_number(const struct tsr_value *v); /* of a FLOAT or INT; NaN of others and NULL */

/* Whether v is a call of this global, by REDUCE or NEWOBJ. */
bool tsr_value_is_call(const struct tsr_value *v, const char *module, const char *name);

/*
 * The DICT of a mapping: v itself, or what was set in a CALL of collections OrderedDict,
 * defaultdict or Counter; an empty mapping gives a DICT without items.  OrderedDict and Counter may
 * have one DICT for argument instead.  NULL for anything else.
 */
const struct tsr_value *tsr_value_mapping(const struct tsr_value *v);

/* The value of a string key in a mapping, or NULL.  The last one if a key comes twice. */
struct tsr_value *tsr_value_at(const struct tsr_value *mapping, const char *key);

/*
 * Children, for walks: items, the parts of a CALL, the id of a PERSISTENT, what a TENSOR has besides its
 * array.  Some of a CALL's and a TENSOR's may be NULL.
 */
#define TSR_VALUE_CALL_NCHILDREN 5u
#define TSR_VALUE_CALL_ITEMS 3u /* the first that is set once the object is there */
size_t tsr_value_nchildren(const struct tsr_value *v);
struct tsr_value *tsr_value_child(const struct tsr_value *v, size_t i);

/* Whether bytes may be a STRING: UTF-8, in which surrogates are allowed. */
bool tsr_value_is_text(const char *bytes, size_t nbytes);

/* Whether bytes may be the module or name of a GLOBAL: ASCII identifiers joined with dots. */
#define TSR_VALUE_NAME_MAX 256u
bool tsr_value_is_name(const char *bytes, size_t nbytes);

/* What a graph may hold when walked as a tree. */
#define TSR_VALUE_DEPTH_MAX 200u
#define TSR_VALUE_LEAVES_MAX 16000000u

/*
 * TSR_E_FORMAT for a value that contains itself; TSR_E_LIMIT for one deeper than
 * TSR_VALUE_DEPTH_MAX (a value without children is 1 deep) or with more than TSR_VALUE_LEAVES_MAX
 * leaves, counted as often as they are reached.  @where starts the message: "FILE: data.pkl".
 * Uses `scratch`, so one thread at a time.
 */
enum tsr_status tsr_value_check(const struct tsr_value *root, const char *where,
				struct tsr_err *err);

/*
 * Put a BACK in each place of a list, tuple or dict that holds a CALL whose state or items lead to that
 * place.  Other cycles stay, for tsr_value_check() to refuse.  False when the arena has no more room.
 */
bool tsr_value_cut_cycles(struct tsr_arena *a, struct tsr_value *root);

/* `scratch` may change even in a const graph: no graph is in read-only memory. */
static inline uint32_t *tsr_value_scratch(const struct tsr_value *v)
{
	return &((struct tsr_value *)(uintptr_t)v)->scratch;
}

/*
 * Set `scratch` back to 0 in the root and in all that it reaches by way of values that are not 0.
 * Behind a check that failed, the path that failed may lead on to values that were left before.
 */
void tsr_value_clear_scratch(const struct tsr_value *root);

#endif
