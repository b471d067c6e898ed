/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3-64 and XXH3-128 of bytes in one place, XXH3-64 of bytes that arrive one after the other. */
#ifndef TSR_IO_HASH_H
#define TSR_IO_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/scope.h"
#include "base/isa.h"

/* Of bytes in one place. */
uint64_t tsr_hash(const void *bytes, size_t nbytes, uint64_t seed);

/* XXH3-128 of bytes in one place. */
void tsr_hash128(const void *bytes, size_t nbytes, uint64_t *low_ret, uint64_t *high_ret);

/* The table that XXH3 mixes bytes with, for kernels: little-endian words. */
#define TSR_HASH_SECRET_WORDS 24u
void tsr_hash_secret(uint64_t words[TSR_HASH_SECRET_WORDS]);

/* With seed 0, of bytes that arrive one after the other. */
struct tsr_hasher;

/* NULL when out of memory; to be freed with tsr_hasher_free(), which takes NULL. */
struct tsr_hasher *tsr_hasher_new(void);
void tsr_hasher_reset(struct tsr_hasher *h);
void tsr_hasher_add(struct tsr_hasher *h, const void *bytes, size_t nbytes);
uint64_t tsr_hasher_value(const struct tsr_hasher *h);
void tsr_hasher_free(struct tsr_hasher *h);
TSR_OWNED_BY(tsr_hasher_free, struct tsr_hasher)

/* tsr_hasher_add(), tsr_hash() and tsr_hash128(), per SIMD level. */
typedef void tsr_hash_add_fn(struct tsr_hasher *h, const void *bytes, size_t nbytes);
typedef uint64_t tsr_hash_bytes_fn(const void *bytes, size_t nbytes, uint64_t seed);
typedef void tsr_hash128_bytes_fn(const void *bytes, size_t nbytes, uint64_t *low_ret,
				  uint64_t *high_ret);
TSR_ISA_DECLARE(tsr_hash_add_fn, hash_add)
TSR_ISA_DECLARE(tsr_hash_bytes_fn, hash_bytes)
TSR_ISA_DECLARE(tsr_hash128_bytes_fn, hash128_bytes)

#endif
