/* SPDX-License-Identifier: Apache-2.0 */
/* Planes of k bits per element, packed so that 32 elements share k words (TSR_BIT_PACKED). */
#ifndef TSR_CODEC_BIT_PACKING_H
#define TSR_CODEC_BIT_PACKING_H

#include <string.h>

#include "tersor/codec.h"

#define PACKING static inline __attribute__((always_inline))
#define SHARE TSR_BIT_PACKED_SHARE

/* Elements whose bits are unpacked at a time: they stay in the L1 cache. */
#define PACKING_BATCH 512

/*
 * Value i of a share takes bits i * bits and up of its words, the lowest first.  First two values
 * become one of twice the bits, in SIMD lanes of 64 bits; those are then strung together.  `bits`
 * is a constant in the functions below, so that all shifts are.
 */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* What is unpacked of a batch: values, or pairs of them, the first in the low bits. */
union packing {
	uint32_t value[PACKING_BATCH];
	uint64_t pair[PACKING_BATCH / 2];
};

PACKING void pack_share(const uint64_t *pair, unsigned char *word, const unsigned bits)
{
	uint64_t held = 0;
	unsigned nheld = 0;

	UNROLL
	for (unsigned i = 0; i < SHARE / 2; i++) {
		held |= pair[i] << nheld;
		nheld += bits;
		if (nheld < 64)
			continue;
		memcpy(word, &held, 8);
		word += 8;
		nheld -= 64;
		held = nheld ? pair[i] >> (bits - nheld) : 0;
	}
	if (nheld)
		memcpy(word, &held, 4);
}

PACKING void unpack_share(const unsigned char *word, uint64_t *pair, const unsigned bits)
{
	const uint64_t mask = (UINT64_C(1) << bits) - 1;
	unsigned left = SHARE / 2 * bits, nheld = 0;
	uint64_t held = 0;

	UNROLL
	for (unsigned i = 0; i < SHARE / 2; i++) {
		const unsigned have = nheld;

		pair[i] = held;
		if (have < bits) {
			nheld = left < 64 ? left : 64;
			left -= nheld;
			held = 0;
			memcpy(&held, word, nheld / 8);
			word += nheld / 8;
			pair[i] |= held << have;
			held >>= bits - have;
			nheld -= bits - have;
		} else {
			held >>= bits;
			nheld -= bits;
		}
		pair[i] &= mask;
	}
}

PACKING void pack_batch(union packing *restrict b, size_t nshares, unsigned char *restrict word,
			const unsigned bits)
{
	for (size_t i = 0; i < nshares * (SHARE / 2); i++)
		b->pair[i] = (b->pair[i] & UINT32_MAX) | b->pair[i] >> 32 << bits;
	for (size_t r = 0; r < nshares; r++)
		pack_share(b->pair + SHARE / 2 * r, word + 4 * bits * r, 2 * bits);
}

PACKING void unpack_batch(union packing *restrict b, size_t nshares,
			  const unsigned char *restrict word, const unsigned bits)
{
	const uint64_t mask = (UINT64_C(1) << bits) - 1;

	for (size_t r = 0; r < nshares; r++)
		unpack_share(word + 4 * bits * r, b->pair + SHARE / 2 * r, 2 * bits);
	for (size_t i = 0; i < nshares * (SHARE / 2); i++)
		b->pair[i] = (b->pair[i] & mask) | b->pair[i] >> bits << 32;
}

#endif
