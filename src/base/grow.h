/* SPDX-License-Identifier: Apache-2.0 */
/* Lists that grow by one item at a time. */
#ifndef TSR_BASE_GROW_H
#define TSR_BASE_GROW_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/fail.h"

/*
 * Room behind the @n items of @nbytes in the list at @list, a pointer to one from malloc() or NULL: there is
 * room for a power of two.  False when out of memory; the list is as before.
 */
static inline bool tsr_grow(void *list, size_t n, size_t nbytes)
{
	void *items;

	if (n & (n - 1))
		return true;
	memcpy(&items, list, sizeof(items));
	items = realloc(items, (n ? 2 * n : 1) * nbytes);
	if (items)
		memcpy(list, &items, sizeof(items));
	return items;
}

/* The same of a list of its type, for TSR_TRY(): TSR_E_NOMEM for `what`. */
#define TSR_GROW(list, n, err, what) \
	(tsr_grow((list), (n), sizeof(**(list))) ? TSR_OK : tsr_fail_nomem((err), (what)))

/* The same of a list in an arena; an item is what @list points to. */
static inline bool tsr_arena_room(struct tsr_arena *a, void *list, size_t n, size_t nbytes)
{
	void *items;

	if (n & (n - 1))
		return true;
	memcpy(&items, list, sizeof(items));
	items = tsr_arena_grow(a, items, n * nbytes, (n ? 2 * n : 1) * nbytes);
	if (items)
		memcpy(list, &items, sizeof(items));
	return items;
}

#define TSR_ARENA_GROW(list, n, arena, err, what) \
	(tsr_arena_room((arena), (list), (n), sizeof(**(list))) ? TSR_OK \
								: tsr_fail_nomem((err), (what)))

#endif
