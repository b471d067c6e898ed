/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over Python values, and what messages say about them. */
#ifndef TSR_FORMAT_VALUE_WALK_H
#define TSR_FORMAT_VALUE_WALK_H

#include "format/value.h"

/*
 * A walk over a value that passed tsr_value_check() and all below it: parents before children, a
 * shared value once.  The current value may be changed in place; its children are looked at after.
 * Start with the root, the number of marks and zeros.  Does not recurse.
 */
struct tsr_value_walk {
	struct tsr_value *root;
	uint32_t mark; /* for values that were visited; not 0, and no other walk's */
	size_t n;
	struct {
		struct tsr_value *v;
		size_t next; /* child */
	} path[TSR_VALUE_DEPTH_MAX]; /* to the current value */
};

/* The marks of all walks, so that none mistakes another's for its own. */
#define TSR_MARK_TORCH 16u
#define TSR_MARK_DCP 17u
#define TSR_MARK_DCP_TREE 18u
#define TSR_MARK_REACHED 19u
#define TSR_MARK_OPAQUE 20u
#define TSR_MARK_ORDERED 21u
#define TSR_MARK_KEPT 24u
#define TSR_MARK_NUMBERED 25u
#define TSR_MARK_STATES 26u
#define TSR_MARK_PARAMETERS 27u

/* The next value; NULL at the end. */
struct tsr_value *tsr_value_walk_next(struct tsr_value_walk *w);

/*
 * The keys that lead to the current value, joined with dots; cut to fit.  UTF-8 without control
 * characters; "" at the root.
 */
void tsr_value_walk_path(const struct tsr_value_walk *w, char *out, size_t nbytes);

/* How many bytes the keys of a DICT have. */
uint64_t tsr_value_keys_nbytes(const struct tsr_value *dict);

/*
 * Look for a key that comes twice in a DICT: text, bytes or ints, which are equal only within their
 * type.  *ret is the second one, or NULL.  False when out of memory.
 */
bool tsr_value_find_twin(const struct tsr_value *dict, const struct tsr_value **ret);

/*
 * For each key of @a, a DICT (@step 2) or a set (@step 1), which one of @b is the same to Python:
 * *in_b_ret has its number, or SIZE_MAX.  Keys that are neither numbers nor texts are paired in their
 * order.  False when out of memory.
 */
bool tsr_value_pair_keys(const struct tsr_value *a, const struct tsr_value *b, size_t step,
			 size_t *in_b_ret);

/* What to call a value in a message: "a list", "-1", "a call of posix.system". */
#define TSR_VALUE_DESCRIBED 640u
const char *tsr_value_describe(const struct tsr_value *v, char out[TSR_VALUE_DESCRIBED]);

#endif
