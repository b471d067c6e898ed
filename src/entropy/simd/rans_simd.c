/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of coded planes.  Element 4 l + r of a block of 128 is pushed and popped by lane l in round
 * r, so that eight lanes hold 32 elements in a row as numbers of 32 bits.
 */
#include "entropy/rans_loops.h"

#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define LANES TSR_RANS_LANES
#define RUN TSR_RANS_RUN
#define BLOCK TSR_RANS_BLOCK
#define BITS TSR_RANS_BITS

/* --- One element after the other ----------------------------------------------------------- */

/* The first @n elements of a block, last to first. */
static uint8_t *encode_block(const struct tsr_rans_encoder *e, const uint8_t *symbols, size_t n,
			     uint32_t *states, uint8_t *end)
{
	for (size_t r = RUN; r-- > 0;) {
		for (size_t lane = LANES; lane-- > 0;) {
			uint32_t x = states[lane];

			if (RUN * lane + r >= n)
				continue;
			if (tsr_rans_sheds(x, e->symbols[symbols[RUN * lane + r]].rest & 0xfff,
					   BITS)) {
				const uint16_t word = (uint16_t)x;

				end -= 2;
				memcpy(end, &word, 2);
				x >>= 16;
			}
			states[lane] = tsr_rans_push(x, e->symbols[symbols[RUN * lane + r]], BITS);
		}
	}
	return end;
}

/* The first @n elements of a block; NULL when the words end at @end first. */
static const uint8_t *decode_block(const struct tsr_rans_decoder *d, const uint8_t *words,
				   const uint8_t *end, uint32_t *states, uint8_t *symbols, size_t n)
{
	for (size_t r = 0; r < RUN; r++) {
		for (size_t lane = 0; lane < LANES; lane++) {
			const uint32_t entry = d->slots[states[lane] & ((1u << BITS) - 1)];
			uint32_t x;
			uint16_t word;

			if (RUN * lane + r >= n)
				break;
			x = tsr_rans_pop(states[lane], entry, BITS);
			symbols[RUN * lane + r] = (uint8_t)tsr_rans_entry_symbol(entry);
			if (x < TSR_RANS_LOW) {
				if (words == end)
					return NULL;
				memcpy(&word, words, 2);
				words += 2;
				x = x << 16 | word;
			}
			states[lane] = x;
		}
	}
	return words;
}

/* --- Eight lanes at once ------------------------------------------------------------------- */

#ifdef __AVX2__
#define WIDTH 8u
#define VECTORS (LANES / WIDTH)

static inline __m128i two_symbols(const struct tsr_rans_symbol *a, const struct tsr_rans_symbol *b)
{
	const __m128i low = _mm_loadl_epi64((const __m128i *)(const void *)a);

	return _mm_castps_si128(
		_mm_loadh_pi(_mm_castsi128_ps(low), (const __m64 *)(const void *)b));
}

/* The reciprocals and the rest of the symbols of eight lanes, RUN bytes apart. */
static inline void look_up(const struct tsr_rans_symbol *table, const uint8_t *symbols,
			   __m256i *reciprocal, __m256i *rest)
{
#define AT(lane) (&table[symbols[RUN * (lane)]])
	const __m256i even = _mm256_inserti128_si256(
		_mm256_castsi128_si256(two_symbols(AT(0), AT(1))), two_symbols(AT(4), AT(5)), 1);
	const __m256i odd = _mm256_inserti128_si256(
		_mm256_castsi128_si256(two_symbols(AT(2), AT(3))), two_symbols(AT(6), AT(7)), 1);
#undef AT
	const __m256 a = _mm256_castsi256_ps(even), b = _mm256_castsi256_ps(odd);

	*reciprocal = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
	*rest = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
}

/* The low halves of eight numbers. */
static inline __m128i low_halves(__m256i x)
{
	const __m256i low = _mm256_blend_epi16(x, _mm256_setzero_si256(), 0xaa);

	return _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
}

static inline __m256i push_eight(__m256i x, __m256i reciprocal, __m256i rest, __m256i freq)
{
	const __m256i increased = _mm256_add_epi32(x, _mm256_srli_epi32(rest, 31));
	const __m256i even = _mm256_mul_epu32(increased, reciprocal);
	const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(increased, 32),
					     _mm256_srli_epi64(reciprocal, 32));
	const __m256i high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
	const __m256i shift = _mm256_and_si256(_mm256_srli_epi32(rest, 24), _mm256_set1_epi32(15));
	const __m256i start = _mm256_and_si256(_mm256_srli_epi32(rest, 12),
					       _mm256_set1_epi32(0xfff));
	const __m256i others = _mm256_sub_epi32(_mm256_set1_epi32(1 << BITS), freq);

	return _mm256_add_epi32(_mm256_add_epi32(x, start),
				_mm256_mullo_epi32(_mm256_srlv_epi32(high, shift), others));
}

/* Push one symbol to each of eight lanes. */
static inline __m256i encode_eight(const struct tsr_rans_encoder *e, const uint8_t *symbols,
				   __m256i x, uint8_t **end)
{
	__m256i reciprocal, rest, freq, stays;
	unsigned shed;

	look_up(e->symbols, symbols, &reciprocal, &rest);
	freq = _mm256_and_si256(rest, _mm256_set1_epi32(0xfff));
	stays = _mm256_cmpgt_epi32(freq, _mm256_srli_epi32(x, 32 - BITS));
	shed = ~(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(stays)) & 0xff;
	_mm_storeu_si128(
		(__m128i *)(void *)(*end - 16),
		_mm_shuffle_epi8(low_halves(x),
				 _mm_loadu_si128((const __m128i *)(const void *)e->move[shed])));
	*end -= 2 * (unsigned)__builtin_popcount(shed);
	x = _mm256_blendv_epi8(_mm256_srli_epi32(x, 16), x, stays);
	return push_eight(x, reciprocal, rest, freq);
}

static uint8_t *encode_blocks(const struct tsr_rans_encoder *e, const uint8_t *symbols,
			      size_t nblocks, uint32_t *states, uint8_t *end)
{
	__m256i x[VECTORS];

	for (unsigned v = 0; v < VECTORS; v++)
		x[v] = _mm256_loadu_si256((const __m256i *)(const void *)(states + WIDTH * v));
	while (nblocks-- > 0) {
		const uint8_t *const block = symbols + nblocks * BLOCK;

		for (unsigned r = RUN; r-- > 0;)
			for (unsigned v = VECTORS; v-- > 0;)
				x[v] = encode_eight(e, block + RUN * WIDTH * v + r, x[v], &end);
	}
	for (unsigned v = 0; v < VECTORS; v++)
		_mm256_storeu_si256((__m256i *)(void *)(states + WIDTH * v), x[v]);
	return end;
}

/* Pop one symbol from each of eight lanes into byte @r of @symbols. */
static inline __m256i decode_eight(const struct tsr_rans_decoder *d, const uint8_t **words,
				   __m256i x, unsigned r, __m256i *symbols)
{
	const __m256i slot = _mm256_and_si256(x, _mm256_set1_epi32((1 << BITS) - 1));
	const __m256i entry = _mm256_i32gather_epi32((const int *)(const void *)d->slots, slot, 4);
	const __m256i symbol = _mm256_and_si256(entry, _mm256_set1_epi32(0xff));
	const __m256i place = _mm256_and_si256(_mm256_srli_epi32(entry, 8),
					       _mm256_set1_epi32(0xfff));
	const __m256i popped = _mm256_add_epi32(
		_mm256_mullo_epi32(_mm256_srli_epi32(entry, 20), _mm256_srli_epi32(x, BITS)),
		place);
	const __m256i lacks = _mm256_cmpeq_epi32(_mm256_srli_epi32(popped, 16),
						 _mm256_setzero_si256());
	const unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(lacks));
	const __m128i loaded = _mm_loadu_si128((const __m128i *)(const void *)*words);
	const __m128i move = _mm_loadu_si128((const __m128i *)(const void *)d->move[mask]);
	const __m256i word = _mm256_cvtepu16_epi32(_mm_shuffle_epi8(loaded, move));
	const __m256i shift = _mm256_and_si256(lacks, _mm256_set1_epi32(16));

	*symbols = _mm256_or_si256(*symbols, _mm256_slli_epi32(symbol, 8 * (int)r));
	*words += 2 * (unsigned)__builtin_popcount(mask);
	return _mm256_or_si256(_mm256_sllv_epi32(popped, shift), word);
}

/* Blocks while no word beyond @end is touched: one takes up to BLOCK words, and eight are loaded at once. */
static const uint8_t *decode_blocks(const struct tsr_rans_decoder *d, const uint8_t *words,
				    const uint8_t *end, uint32_t *states, uint8_t *symbols,
				    size_t nblocks, size_t *done)
{
	__m256i x[VECTORS];
	size_t b = 0;

	for (unsigned v = 0; v < VECTORS; v++)
		x[v] = _mm256_loadu_si256((const __m256i *)(const void *)(states + WIDTH * v));
	for (; b < nblocks && (size_t)(end - words) >= 2 * (BLOCK + WIDTH); b++) {
		__m256i bytes[VECTORS] = { 0 };

		for (unsigned r = 0; r < RUN; r++)
			for (unsigned v = 0; v < VECTORS; v++)
				x[v] = decode_eight(d, &words, x[v], r, &bytes[v]);
		for (unsigned v = 0; v < VECTORS; v++)
			_mm256_storeu_si256(
				(__m256i *)(void *)(symbols + BLOCK * b + RUN * WIDTH * v),
				bytes[v]);
	}
	for (unsigned v = 0; v < VECTORS; v++)
		_mm256_storeu_si256((__m256i *)(void *)(states + WIDTH * v), x[v]);
	*done = b;
	return words;
}
#else
static uint8_t *encode_blocks(const struct tsr_rans_encoder *e, const uint8_t *symbols,
			      size_t nblocks, uint32_t *states, uint8_t *end)
{
	while (nblocks-- > 0)
		end = encode_block(e, symbols + nblocks * BLOCK, BLOCK, states, end);
	return end;
}

static const uint8_t *decode_blocks(const struct tsr_rans_decoder *d, const uint8_t *words,
				    const uint8_t *end, uint32_t *states, uint8_t *symbols,
				    size_t nblocks, size_t *done)
{
	for (*done = 0; *done < nblocks && words; ++*done)
		words = decode_block(d, words, end, states, symbols + *done * BLOCK, BLOCK);
	return words;
}
#endif

/* --- Segments ------------------------------------------------------------------------------ */

uint8_t *TSR_FOR_ISA(rans_encode)(const struct tsr_rans_encoder *e, const uint8_t *symbols,
				  size_t n, uint32_t *states, uint8_t *end)
{
	const size_t nblocks = n / BLOCK;

	end = encode_block(e, symbols + nblocks * BLOCK, n % BLOCK, states, end);
	return encode_blocks(e, symbols, nblocks, states, end);
}

/* What decode_blocks() leaves are less than these words; behind as many zeros it can go on. */
#define LAST_NBYTES (2 * (BLOCK + 8u))

bool TSR_FOR_ISA(rans_decode)(const struct tsr_rans_decoder *d, const uint8_t *words, size_t nwords,
			      uint32_t *states, uint8_t *symbols, size_t n)
{
	const uint8_t *end = words + 2 * nwords;
	const size_t nblocks = n / BLOCK;
	uint8_t last[2 * LAST_NBYTES];
	size_t done, left;

	words = decode_blocks(d, words, end, states, symbols, nblocks, &done);
	if (words && done < nblocks) {
		left = (size_t)(end - words);
		memcpy(last, words, left);
		memset(last + left, 0, LAST_NBYTES);
		end = last + left;
		words = decode_blocks(d, last, end + LAST_NBYTES, states, symbols + done * BLOCK,
				      nblocks - done, &left);
		done += left;
	}
	if (!words || words > end || done < nblocks)
		return false;
	return decode_block(d, words, end, states, symbols + nblocks * BLOCK, n % BLOCK) == end;
}

/* --- Elements and streams ------------------------------------------------------------------ */

/* @n elements of @width bytes, which is a constant where this is inlined. */
static inline __attribute__((always_inline)) void split(unsigned width, bool rotated,
							const uint8_t *restrict plain, size_t n,
							uint8_t *restrict streams)
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

static inline __attribute__((always_inline)) void merge(unsigned width, bool rotated,
							const uint8_t *restrict streams, size_t n,
							uint8_t *restrict plain)
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
		split(2, true, plain, n, streams);
	else if (kind.width == 2)
		split(2, false, plain, n, streams);
	else if (kind.width == 4)
		split(4, kind.rotated, plain, n, streams);
	else
		split(8, false, plain, n, streams);
}

void TSR_FOR_ISA(rans_merge)(struct tsr_entropy_kind kind, const uint8_t *streams, size_t n,
			     uint8_t *plain)
{
	if (kind.width == 2 && kind.rotated)
		merge(2, true, streams, n, plain);
	else if (kind.width == 2)
		merge(2, false, streams, n, plain);
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
