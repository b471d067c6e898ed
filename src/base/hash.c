/* SPDX-License-Identifier: Apache-2.0 */
/* This and simd/hash.c are the only files that know xxHash, which is compiled into them. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.h"
#include "base/isa.h"

typedef void hash_add_fn(struct tsr_hasher *h, const void *bytes, size_t nbytes);

#define X(isa) extern hash_add_fn tsr_hash_add_##isa;
TSR_ISA_LIST(X)
#undef X

static const struct {
	bool (*supported)(void);
	hash_add_fn *add;
} levels[] = {
#define X(isa) { tsr_cpu_has_##isa, tsr_hash_add_##isa },
	TSR_ISA_LIST(X)
#undef X
};

/* By the fastest way that there is: the value is the same, so this is no matter of choice. */
static hash_add_fn *best_add(void)
{
	size_t i = sizeof(levels) / sizeof(*levels) - 1;

	while (!levels[i].supported())
		i--;
	return levels[i].add;
}

uint64_t tsr_hash(const void *bytes, size_t nbytes, uint64_t seed)
{
	return XXH3_64bits_withSeed(bytes, nbytes, seed);
}

struct tsr_hasher *tsr_hasher_new(void)
{
	XXH3_state_t *state = XXH3_createState();

	if (state)
		XXH3_64bits_reset(state);
	return (struct tsr_hasher *)state;
}

void tsr_hasher_reset(struct tsr_hasher *h)
{
	XXH3_64bits_reset((XXH3_state_t *)h);
}

void tsr_hasher_add(struct tsr_hasher *h, const void *bytes, size_t nbytes)
{
	best_add()(h, bytes, nbytes);
}

uint64_t tsr_hasher_value(const struct tsr_hasher *h)
{
	return XXH3_64bits_digest((const XXH3_state_t *)h);
}

void tsr_hasher_free(struct tsr_hasher *h)
{
	XXH3_freeState((XXH3_state_t *)h);
}
