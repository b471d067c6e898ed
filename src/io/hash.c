/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of bytes.  This and simd/hash_simd.c are the only files that know xxHash, which they contain. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/hash.h"
#include "base/isa.h"

uint64_t tsr_hash(const void *bytes, size_t nbytes, uint64_t seed)
{
	static tsr_hash_bytes_fn *const hash[] = TSR_ISA_VARIANTS(hash_bytes);

	return hash[tsr_isa_level()](bytes, nbytes, seed);
}

void tsr_hash128(const void *bytes, size_t nbytes, uint64_t *low_ret, uint64_t *high_ret)
{
	const XXH128_hash_t hash = XXH3_128bits(bytes, nbytes);

	*low_ret = hash.low64;
	*high_ret = hash.high64;
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
	static tsr_hash_add_fn *const add[] = TSR_ISA_VARIANTS(hash_add);

	add[tsr_isa_level()](h, bytes, nbytes);
}

uint64_t tsr_hasher_value(const struct tsr_hasher *h)
{
	return XXH3_64bits_digest((const XXH3_state_t *)h);
}

/* Both hashes have the same state until it is digested. */
void tsr_hasher_value128(const struct tsr_hasher *h, uint64_t *low_ret, uint64_t *high_ret)
{
	const XXH128_hash_t hash = XXH3_128bits_digest((const XXH3_state_t *)h);

	*low_ret = hash.low64;
	*high_ret = hash.high64;
}

void tsr_hasher_free(struct tsr_hasher *h)
{
	XXH3_freeState((XXH3_state_t *)h);
}
