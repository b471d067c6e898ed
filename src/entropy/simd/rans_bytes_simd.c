/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of bytes to be coded: elements taken apart into streams, put together, and counts of symbols. */
#include "entropy/rans_loops.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* --- Elements and streams ------------------------------------------------------------------ */

/* Elements of two bytes, in lines of their own and in numbers of 16 bits, so that they become SIMD code. */
INLINE void split_2(bool rotated, const uint8_t *restrict plain, size_t n, uint8_t *restrict low,
		    uint8_t *restrict high)
{
	for (size_t i = 0; i < n; i++) {
		uint16_t value;

		memcpy(&value, plain + 2 * i, 2);
		if (rotated)
			value = (uint16_t)(value << 1 | value >> 15);
		low[i] = (uint8_t)value;
		high[i] = (uint8_t)(value >> 8);
	}
}

INLINE void merge_2(bool rotated, const uint8_t *restrict low, const uint8_t *restrict high,
		    size_t n, uint8_t *restrict plain)
{
	for (size_t i = 0; i < n; i++) {
		uint16_t value = (uint16_t)(low[i] | high[i] << 8);

		if (rotated)
			value = (uint16_t)(value >> 1 | value << 15);
		memcpy(plain + 2 * i, &value, 2);
	}
}

/* Wider elements, of @width bytes, which is a constant where this is inlined. */
INLINE void split(unsigned width, bool rotated, const uint8_t *plain, size_t n, uint8_t *streams)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t value = 0;

		memcpy(&value, plain + i * width, width);
		if (rotated)
			value = value << 1 | value >> (8 * width - 1);
		for (unsigned k = 0; k < width; k++)
			streams[k * TSR_ENTROPY_PIECE + i] = (uint8_t)(value >> 8 * k);
	}
}

INLINE void merge(unsigned width, bool rotated, const uint8_t *streams, size_t n, uint8_t *plain)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t value = 0;

		for (unsigned k = 0; k < width; k++)
			value |= (uint64_t)streams[k * TSR_ENTROPY_PIECE + i] << 8 * k;
		if (rotated)
			value = value >> 1 | (value & 1) << (8 * width - 1);
		memcpy(plain + i * width, &value, width);
	}
}

void TSR_FOR_ISA(rans_split)(struct tsr_entropy_kind kind, const uint8_t *plain, size_t n,
			     uint8_t *streams)
{
	if (kind.width == 2 && kind.rotated)
		split_2(true, plain, n, streams, streams + TSR_ENTROPY_PIECE);
	else if (kind.width == 2)
		split_2(false, plain, n, streams, streams + TSR_ENTROPY_PIECE);
	else if (kind.width == 4)
		split(4, kind.rotated, plain, n, streams);
	else
		split(8, false, plain, n, streams);
}

void TSR_FOR_ISA(rans_merge)(struct tsr_entropy_kind kind, const uint8_t *streams, size_t n,
			     uint8_t *plain)
{
	if (kind.width == 2 && kind.rotated)
		merge_2(true, streams, streams + TSR_ENTROPY_PIECE, n, plain);
	else if (kind.width == 2)
		merge_2(false, streams, streams + TSR_ENTROPY_PIECE, n, plain);
	else if (kind.width == 4)
		merge(4, kind.rotated, streams, n, plain);
	else
		merge(8, false, streams, n, plain);
}

/* In four tables, or equal bytes in a row would wait for each other. */
void TSR_FOR_ISA(rans_count)(const uint8_t *symbols, size_t n, uint32_t *count)
{
	uint32_t part[4][256] = { 0 };
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		uint64_t eight;

		memcpy(&eight, symbols + i, 8);
		for (unsigned k = 0; k < 8; k++)
			part[k % 4][eight >> 8 * k & 0xff]++;
	}
	for (; i < n; i++)
		part[0][symbols[i]]++;
	for (unsigned s = 0; s < 256; s++)
		count[s] = part[0][s] + part[1][s] + part[2][s] + part[3][s];
}

/* Pairs of a context and a symbol, which are counted while they are in the first cache. */
#define COUNTED 1024u

static void count_pairs(const uint16_t *pairs, size_t n, uint32_t *even, uint32_t *odd)
{
	size_t i = 0;

	for (; i + 4 <= n; i += 4) {
		uint64_t four;

		memcpy(&four, pairs + i, 8);
		even[four & 0xffff]++;
		odd[four >> 16 & 0xffff]++;
		even[four >> 32 & 0xffff]++;
		odd[four >> 48]++;
	}
	for (; i < n; i++)
		even[pairs[i]]++;
}

void TSR_FOR_ISA(rans_count_contexts)(const uint8_t *contexts, const uint8_t *symbols, size_t n,
				      unsigned ncontexts, uint32_t *count)
{
	uint32_t odd[256 * TSR_RANS_CONTEXT_COUNT];
	uint16_t pairs[COUNTED];

	memset(odd, 0, 256 * ncontexts * sizeof(*odd));
	memset(count, 0, 256 * ncontexts * sizeof(*count));
	for (size_t at = 0; at < n; at += COUNTED) {
		const size_t size = n - at < COUNTED ? n - at : COUNTED;

		for (size_t i = 0; i < size; i++)
			pairs[i] = (uint16_t)(contexts[at + i] << 8 | symbols[at + i]);
		count_pairs(pairs, size, count, odd);
	}
	for (unsigned pair = 0; pair < 256 * ncontexts; pair++)
		count[pair] += odd[pair];
}
