/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of bytes.  This and simd/hash_simd.c are the only files that know xxHash, which they contain. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/hash.h"
#include "base/isa.h"
#include "base/little_endian.h"

uint64_t tsr_hash(const void *bytes, size_t nbytes, uint64_t seed)
{
	static tsr_hash_bytes_fn *const hash[] = TSR_ISA_VARIANTS(hash_bytes);

	return hash[tsr_isa_level()](bytes, nbytes, seed);
}

void tsr_hash128(const void *bytes, size_t nbytes, uint64_t *low_ret, uint64_t *high_ret)
{
	static tsr_hash128_bytes_fn *const hash[] = TSR_ISA_VARIANTS(hash128_bytes);

	hash[tsr_isa_level()](bytes, nbytes, low_ret, high_ret);
}

void tsr_hash_secret(uint64_t words[TSR_HASH_SECRET_WORDS])
{
	for (size_t i = 0; i < TSR_HASH_SECRET_WORDS; i++)
		words[i] = tsr_get_le(&XXH3_kSecret[8 * i], 8);
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

void tsr_hasher_free(struct tsr_hasher *h)
{
	XXH3_freeState((XXH3_state_t *)h);
}
