/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table whose keys come from files that may want to slow it down. */
#ifndef TSR_TEXT_MAP_H
#define TSR_TEXT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether an item of a map is the one that has this key. */
typedef bool tsr_map_same(const void *item, const void *key);

/*
 * A set of items, found by key.  The caller sets the first two members, and the rest to zeros.  The
 * map draws a seed of its own, so nobody can choose keys that collide in it.  It has no order.
 */
struct tsr_map {
	size_t item_nbytes; /* 0: only the keys matter */
	tsr_map_same *same; /* NULL: keys with the same hash are taken for the same */
	uint64_t seed; /* 0: none drawn yet */
	size_t n, nslots; /* nslots: a power of two, or 0 */
	uint64_t *slots; /* per slot the hash, 0 in a free one, and the item */
};

/* The hash of @nbytes bytes; different in another map, and for another @scope. */
uint64_t tsr_map_hash(struct tsr_map *m, const void *bytes, size_t nbytes, uint64_t scope);

/*
 * The item that has this key, or room for a new one, which the caller fills in at once: then
 * *is_new is true.  Valid until the next call.  NULL when out of memory.
 */
void *tsr_map_put(struct tsr_map *m, uint64_t hash, const void *key, bool *is_new);

void tsr_map_free(struct tsr_map *m);

#endif
