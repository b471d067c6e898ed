/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table with open addressing and a seed of its own. */
#include "text/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/old_libc.h"
#include "io/hash.h"

#define FIRST_SLOTS 16u

/* Without random numbers, which Linux always has, there is still where the kernel put the stack. */
static uint64_t draw_seed(void)
{
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
		seed = (uint64_t)(uintptr_t)&seed;
	return seed ? seed : 1;
}

/*
 * The hash of a short key is little more than its sum with the seed, so the seeds of two scopes
 * must lie far apart: multiples of the golden ratio do.
 */
uint64_t tsr_map_hash(struct tsr_map *m, const void *bytes, size_t nbytes, uint64_t scope)
{
	if (!m->seed)
		m->seed = draw_seed();
	return tsr_hash(bytes, nbytes, m->seed + scope * UINT64_C(0x9e3779b97f4a7c15));
}

static size_t words_per_slot(const struct tsr_map *m)
{
	return 1 + (m->item_nbytes + sizeof(*m->slots) - 1) / sizeof(*m->slots);
}

/* The slot of a key, or the free one where it belongs; @key is not in the map if @is_absent. */
static uint64_t *find_slot(const struct tsr_map *m, uint64_t hash, const void *key, bool is_absent)
{
	const size_t words = words_per_slot(m), mask = m->nslots - 1;

	for (size_t at = (size_t)hash & mask;; at = (at + 1) & mask) {
		uint64_t *slot = m->slots + words * at;

		if (!*slot || (!is_absent && *slot == hash && (!m->same || m->same(slot + 1, key))))
			return slot;
	}
}

static bool grow(struct tsr_map *m)
{
	const size_t words = words_per_slot(m);
	struct tsr_map grown = *m;

	grown.nslots = m->nslots ? 2 * m->nslots : FIRST_SLOTS;
	grown.slots = calloc(grown.nslots, words * sizeof(*grown.slots));
	if (!grown.slots)
		return false;
	for (size_t i = 0; i < m->nslots; i++) {
		const uint64_t *slot = m->slots + words * i;

		if (*slot)
			memcpy(find_slot(&grown, *slot, NULL, true), slot, words * sizeof(*slot));
	}
	free(m->slots);
	*m = grown;
	return true;
}

void *tsr_map_put(struct tsr_map *m, uint64_t hash, const void *key, bool *is_new)
{
	uint64_t *slot;

	if (2 * (m->n + 1) > m->nslots && !grow(m))
		return NULL;
	hash += hash == 0;
	slot = find_slot(m, hash, key, false);
	*is_new = !*slot;
	*slot = hash;
	m->n += *is_new;
	return slot + 1;
}

void tsr_map_free(struct tsr_map *m)
{
	free(m->slots);
	*m = (struct tsr_map){ .item_nbytes = m->item_nbytes, .same = m->same };
}
