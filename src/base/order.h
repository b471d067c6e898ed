/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of items for qsort() and bsearch(). */
#ifndef TSR_BASE_ORDER_H
#define TSR_BASE_ORDER_H

/* The order of two numbers: -1, 0 or 1. */
#define TSR_ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/*
 * A static function that compares two items of @type, to which `a` and `b` point in the expression @order; or
 * by @first, and where that is equal by @second.
 */
#define TSR_COMPARE(function, type, order) TSR_COMPARE_BY(function, type, 0, order)
#define TSR_COMPARE_BY(function, type, first, second) \
	static int function(const void *va, const void *vb) \
	{ \
		type const *const a = va; \
		type const *const b = vb; \
		const int order = (first); \
\
		return order ? order : (second); \
	}

/* The order by both, for numbers: both are looked at. */
static inline int tsr_order_then(int first, int second)
{
	return first ? first : second;
}

#endif
