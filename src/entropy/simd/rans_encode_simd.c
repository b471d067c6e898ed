/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops that encode coded planes.  Element 4 l + r of a block of 128 is pushed by lane l in round r, so
 * that eight lanes hold 32 elements in a row as numbers of 32 bits.
 */
#include "entropy/simd/rans_lanes.h"

#include <string.h>

/* Symbols to push, and the table of each; NULL, which is a constant when inlined: there is one table. */
struct pushed {
	const uint8_t *symbols, *tables;
};

INLINE struct pushed skip(struct pushed p, size_t n)
{
	return (struct pushed){ p.symbols + n, p.tables ? p.tables + n : NULL };
}

/* --- One element after the other ----------------------------------------------------------- */

/* The first @n elements of a block, last to first. */
INLINE uint8_t *encode_block(const struct tsr_rans_encoder *e, struct pushed p, size_t n,
			     uint32_t *states, uint8_t *end)
{
	for (size_t r = RUN; r-- > 0;) {
		for (size_t lane = LANES; lane-- > 0;) {
			const size_t i = RUN * lane + r;
			struct tsr_rans_symbol symbol;
			uint32_t x = states[lane];

			if (i >= n)
				continue;
			symbol = e->symbols[(p.tables ? p.tables[i] << 8 : 0) | p.symbols[i]];
			if (tsr_rans_sheds(x, tsr_rans_symbol_freq(symbol), BITS)) {
				const uint16_t word = (uint16_t)x;

				end -= 2;
				memcpy(end, &word, 2);
				x >>= 16;
			}
			states[lane] = tsr_rans_push(x, symbol, BITS);
		}
	}
	return end;
}

/* --- Eight lanes at once ------------------------------------------------------------------- */

#ifdef __AVX2__
/* Symbols to look up: bytes, or with their tables' numbers in front of them. */
struct block {
	const uint8_t *bytes;
	const uint16_t *pairs; /* NULL: there are none, a constant when inlined */
};

INLINE long long symbol_at(const struct tsr_rans_encoder *e, struct block b, size_t i)
{
	long long symbol;

	memcpy(&symbol, &e->symbols[b.pairs ? b.pairs[i] : b.bytes[i]], 8);
	return symbol;
}

/*
 * The symbols of eight lanes, RUN elements apart, those of lanes 0, 1, 4, 5 and of 2, 3, 6, 7 together.
 * Loads that fill a register, and blends, leave the ports free that shift and shuffle.
 */
INLINE void look_up_symbols(const struct tsr_rans_encoder *e, struct block b, size_t first,
			    __m256i *even, __m256i *odd)
{
#define AT(lane) _mm256_set1_epi64x(symbol_at(e, b, first + RUN * (lane)))
	*even = _mm256_blend_epi32(_mm256_blend_epi32(AT(0), AT(1), 0x0c),
				   _mm256_blend_epi32(AT(4), AT(5), 0xc0), 0xf0);
	*odd = _mm256_blend_epi32(_mm256_blend_epi32(AT(2), AT(3), 0x0c),
				  _mm256_blend_epi32(AT(6), AT(7), 0xc0), 0xf0);
#undef AT
}

/* The low halves of eight numbers. */
static inline __m128i low_halves(__m256i x)
{
	const __m256i low = _mm256_blend_epi16(x, _mm256_setzero_si256(), 0xaa);

	return _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
}

/* The higher halves of pairs of numbers: those of lanes 0, 1, 4, 5 and of 2, 3, 6, 7 in order. */
static inline __m256i high_numbers(__m256i even, __m256i odd)
{
	return _mm256_castps_si256(
		_mm256_shuffle_ps(_mm256_castsi256_ps(even), _mm256_castsi256_ps(odd), 0xdd));
}

/* The quotients of eight states, the symbols as look_up_symbols() has them. */
static inline __m256i divide_eight(__m256i x, __m256i even, __m256i odd, __m256i rest)
{
	const __m256i one = _mm256_and_si256(_mm256_srli_epi32(rest, 4), _mm256_set1_epi32(1));
	const __m256i increased = _mm256_add_epi32(x, one);
	const __m256i a = _mm256_mul_epu32(_mm256_unpacklo_epi32(increased, increased), even);
	const __m256i b = _mm256_mul_epu32(_mm256_unpackhi_epi32(increased, increased), odd);

	return _mm256_srlv_epi32(high_numbers(a, b), _mm256_and_si256(rest, _mm256_set1_epi32(15)));
}

/* Push one symbol to each of eight lanes, from the first one on of a block. */
INLINE __m256i encode_eight(const struct tsr_rans_encoder *e, struct block block, size_t first,
			    __m256i x, uint8_t **end)
{
	__m256i even, odd, rest, limit, sheds, start, others;
	unsigned shed;

	look_up_symbols(e, block, first, &even, &odd);
	rest = high_numbers(even, odd);
	/* tsr_rans_sheds() for tables of 12 bits: x >= freq << 20, unsigned. */
	limit = _mm256_and_si256(rest, _mm256_set1_epi32((int)0xfff00000));
	sheds = _mm256_cmpeq_epi32(_mm256_max_epu32(x, limit), x);
	shed = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(sheds));
	_mm_storeu_si128((__m128i *)(void *)(*end - 16),
			 _mm_shuffle_epi8(low_halves(x), load_sixteen(e->move[shed])));
	*end -= 2 * (unsigned)__builtin_popcount(shed);
	x = _mm256_blendv_epi8(x, _mm256_srli_epi32(x, 16), sheds);
	start = _mm256_and_si256(_mm256_srli_epi32(rest, 8), _mm256_set1_epi32(0xfff));
	others = _mm256_sub_epi32(_mm256_set1_epi32(1 << BITS), _mm256_srli_epi32(rest, 20));
	return _mm256_add_epi32(_mm256_add_epi32(x, start),
				_mm256_mullo_epi32(divide_eight(x, even, odd, rest), others));
}

INLINE uint8_t *encode_blocks_of(const struct tsr_rans_encoder *e, struct block block,
				 size_t nblocks, uint32_t *states, uint8_t *end)
{
	__m256i a = load_eight(states), b = load_eight(states + 8);
	__m256i c = load_eight(states + 16), d = load_eight(states + 24);

	while (nblocks-- > 0) {
		for (unsigned r = RUN; r-- > 0;) {
			const size_t first = nblocks * BLOCK + r;

			d = encode_eight(e, block, first + 96, d, &end);
			c = encode_eight(e, block, first + 64, c, &end);
			b = encode_eight(e, block, first + 32, b, &end);
			a = encode_eight(e, block, first, a, &end);
		}
	}
	store_eight(states, a);
	store_eight(states + 8, b);
	store_eight(states + 16, c);
	store_eight(states + 24, d);
	return end;
}

/* Pairs are made for many blocks at once: those read right after they are written are waited for. */
#define TOGETHER 16u

INLINE uint8_t *encode_blocks(const struct tsr_rans_encoder *e, struct pushed p, size_t nblocks,
			      uint32_t *states, uint8_t *end)
{
	uint16_t pairs[TOGETHER * BLOCK];

	if (!p.tables)
		return encode_blocks_of(e, (struct block){ p.symbols, NULL }, nblocks, states, end);
	while (nblocks > 0) {
		const size_t n = (nblocks - 1) % TOGETHER + 1;
		const struct pushed these = skip(p, (nblocks - n) * BLOCK);

		for (size_t i = 0; i < n * BLOCK; i++)
			pairs[i] = (uint16_t)(these.tables[i] << 8 | these.symbols[i]);
		end = encode_blocks_of(e, (struct block){ NULL, pairs }, n, states, end);
		nblocks -= n;
	}
	return end;
}
#else
INLINE uint8_t *encode_blocks(const struct tsr_rans_encoder *e, struct pushed p, size_t nblocks,
			      uint32_t *states, uint8_t *end)
{
	while (nblocks-- > 0)
		end = encode_block(e, skip(p, nblocks * BLOCK), BLOCK, states, end);
	return end;
}
#endif

/* --- Segments ------------------------------------------------------------------------------ */

INLINE uint8_t *encode(const struct tsr_rans_encoder *e, struct pushed p, size_t n,
		       uint32_t *states, uint8_t *end)
{
	const size_t nblocks = n / BLOCK;

	end = encode_block(e, skip(p, nblocks * BLOCK), n % BLOCK, states, end);
	return encode_blocks(e, p, nblocks, states, end);
}

uint8_t *TSR_FOR_ISA(rans_encode)(const struct tsr_rans_encoder *e, const uint8_t *symbols,
				  size_t n, uint32_t *states, uint8_t *end)
{
	return encode(e, (struct pushed){ symbols, NULL }, n, states, end);
}

uint8_t *TSR_FOR_ISA(rans_encode_contexts)(const struct tsr_rans_encoder *e, const uint8_t *tables,
					   const uint8_t *symbols, size_t n, uint32_t *states,
					   uint8_t *end)
{
	return encode(e, (struct pushed){ symbols, tables }, n, states, end);
}
