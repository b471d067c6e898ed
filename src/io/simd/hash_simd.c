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
