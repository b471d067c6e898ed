/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TSR_BASE_HASH_H
#define TSR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH3-64 of a run of bytes. */
uint64_t tsr_hash(const void *bytes, size_t nbytes, uint64_t seed);

/* XXH3-64, seed 0, of bytes that arrive in pieces. */
struct tsr_hasher;

/* NULL when out of memory; to be freed with tsr_hasher_free(), which takes NULL. */
struct tsr_hasher *tsr_hasher_new(void);
void tsr_hasher_reset(struct tsr_hasher *h);
void tsr_hasher_add(struct tsr_hasher *h, const void *bytes, size_t nbytes);
uint64_t tsr_hasher_value(const struct tsr_hasher *h);
void tsr_hasher_free(struct tsr_hasher *h);

#endif
