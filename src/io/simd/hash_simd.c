/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3, which takes half the time with wider vectors.  Its state is the same for all of them. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/hash.h"
#include "base/isa.h"

void TSR_FOR_ISA(hash_add)(struct tsr_hasher *h, const void *bytes, size_t nbytes)
{
	XXH3_64bits_update((XXH3_state_t *)h, bytes, nbytes);
}

uint64_t TSR_FOR_ISA(hash_bytes)(const void *bytes, size_t nbytes, uint64_t seed)
{
	return XXH3_64bits_withSeed(bytes, nbytes, seed);
}

void TSR_FOR_ISA(hash128_bytes)(const void *bytes, size_t nbytes, uint64_t *low_ret,
				uint64_t *high_ret)
{
	const XXH128_hash_t hash = XXH3_128bits(bytes, nbytes);

	*low_ret = hash.low64;
	*high_ret = hash.high64;
}
