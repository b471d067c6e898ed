/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops that decode coded planes.  Element 4 l + r of a block of 128 is popped by lane l in round r, so
 * that eight lanes hold 32 elements in a row as numbers of 32 bits.
 */
#include "entropy/simd/rans_lanes.h"

#include <string.h>

/* --- One element after the other ----------------------------------------------------------- */

/* The first @n elements of a block; NULL when the words end at @end first. */
INLINE const uint8_t *decode_block(const struct tsr_rans_decoder *d, const uint8_t *contexts,
				   const uint8_t *words, const uint8_t *end, uint32_t *states,
				   uint8_t *symbols, size_t n)
{
	for (size_t r = 0; r < RUN; r++) {
		for (size_t lane = 0; lane < LANES; lane++) {
			uint32_t entry, x, slot = states[lane] & ((1u << BITS) - 1);
			uint16_t word;

			if (RUN * lane + r >= n)
				break;
			if (contexts)
				slot |= (uint32_t)contexts[RUN * lane + r] << BITS;
			entry = d->slots[slot];
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
/*
 * The entries of eight slots.  Loads that fill a register, and blends, are several times as fast as a
 * gather of Zen or of an Intel processor with mitigations, and as fast as that of others.
 */
static inline __m256i look_up_slots(const uint32_t *slots, __m256i slot)
{
	uint64_t pairs[4];
	__m256i low, high;

	store_eight(pairs, slot);
#define AT(lane) _mm256_set1_epi32((int)slots[(uint32_t)(pairs[(lane) / 2] >> 32 * ((lane) % 2))])
	low = _mm256_blend_epi32(_mm256_blend_epi32(AT(0), AT(1), 0x02),
				 _mm256_blend_epi32(AT(2), AT(3), 0x08), 0x0c);
	high = _mm256_blend_epi32(_mm256_blend_epi32(AT(4), AT(5), 0x20),
				  _mm256_blend_epi32(AT(6), AT(7), 0x80), 0xc0);
#undef AT
	return _mm256_blend_epi32(low, high, 0xf0);
}

/* The first slots of the contexts in the lowest bytes, which make room for the next ones. */
static inline __m256i use_contexts(__m256i *contexts)
{
	const __m256i context = _mm256_and_si256(*contexts, _mm256_set1_epi32(0xff));

	*contexts = _mm256_srli_epi32(*contexts, 8);
	return _mm256_slli_epi32(context, BITS);
}

/*
 * Pop one symbol from each of eight lanes to the end of their four @symbols.  Of the four @contexts of
 * each the first one is used up.
 */
INLINE __m256i decode_eight(const struct tsr_rans_decoder *d, const uint8_t **words, __m256i x,
			    __m256i *contexts, __m256i *symbols)
{
	const __m256i in_table = _mm256_and_si256(x, _mm256_set1_epi32((1 << BITS) - 1));
	const __m256i slot = contexts ? _mm256_or_si256(in_table, use_contexts(contexts))
				      : in_table;
	const __m256i entry = look_up_slots(d->slots, slot);
	const __m256i place = _mm256_and_si256(_mm256_srli_epi32(entry, 8),
					       _mm256_set1_epi32(0xfff));
	const __m256i popped = _mm256_add_epi32(
		_mm256_mullo_epi32(_mm256_srli_epi32(entry, 20), _mm256_srli_epi32(x, BITS)),
		place);
	const __m256i lacks = _mm256_cmpeq_epi32(_mm256_srli_epi32(popped, 16),
						 _mm256_setzero_si256());
	const unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(lacks));
	const __m256i loaded = _mm256_broadcastsi128_si256(load_sixteen(*words));
	const __m256i word = _mm256_shuffle_epi8(loaded, load_eight(d->move[mask]));
	const __m256i shift = _mm256_and_si256(lacks, _mm256_set1_epi32(16));

	*symbols = _mm256_or_si256(_mm256_srli_epi32(*symbols, 8), _mm256_slli_epi32(entry, 24));
	*words += 2 * (unsigned)__builtin_popcount(mask);
	return _mm256_or_si256(_mm256_sllv_epi32(popped, shift), word);
}

/* The first slots of all tables: their frequencies, and in each half their symbols. */
struct first {
	__m256i freqs, symbols;
};

static inline struct first load_first(const struct tsr_rans_decoder *d)
{
	uint32_t freqs[TSR_RANS_TABLE_COUNT];
	uint8_t symbols[16] = { 0 };

	for (unsigned table = 0; table < TSR_RANS_TABLE_COUNT; table++) {
		freqs[table] = d->slots[table << BITS] >> 20;
		symbols[table] = (uint8_t)tsr_rans_entry_symbol(d->slots[table << BITS]);
	}
	return (struct first){ load_eight(freqs),
			       _mm256_broadcastsi128_si256(load_sixteen(symbols)) };
}

/*
 * decode_eight() in round @r, given the first symbols of tables in all four @symbols.  If all lanes pop that
 * and lack no word, which is likely where symbols are few, nothing is looked up in memory.
 */
INLINE __m256i decode_few(const struct tsr_rans_decoder *d, __m256i freqs, unsigned r,
			  const uint8_t **words, __m256i x, __m256i *contexts, __m256i *symbols)
{
	const __m256i in_table = _mm256_and_si256(x, _mm256_set1_epi32((1 << BITS) - 1));
	const __m256i freq = _mm256_permutevar8x32_epi32(freqs, *contexts);
	const __m256i popped = _mm256_add_epi32(
		_mm256_mullo_epi32(freq, _mm256_srli_epi32(x, BITS)), in_table);
	const __m256i is_first = _mm256_and_si256(_mm256_cmpgt_epi32(freq, in_table), popped);
	const __m256i all = _mm256_cmpeq_epi32(
		_mm256_max_epu32(is_first, _mm256_set1_epi32(TSR_RANS_LOW)), is_first);
	__m256i other = _mm256_setzero_si256();

	if (_mm256_movemask_epi8(all) == -1) {
		*contexts = _mm256_srli_epi32(*contexts, 8);
		return popped;
	}
	x = decode_eight(d, words, x, contexts, &other);
	*symbols = _mm256_blendv_epi8(*symbols,
				      _mm256_srl_epi32(other, _mm_cvtsi32_si128((int)(24 - 8 * r))),
				      _mm256_set1_epi32((int)(0xffu << 8 * r)));
	return x;
}

/* Blocks while no word beyond @end is touched: one takes up to BLOCK words, and eight are loaded at once. */
INLINE const uint8_t *decode_blocks(const struct tsr_rans_decoder *t, const uint8_t *contexts,
				    bool few, const uint8_t *words, const uint8_t *end,
				    uint32_t *states, uint8_t *symbols, size_t nblocks,
				    size_t *done)
{
	__m256i a = load_eight(states), b = load_eight(states + 8);
	__m256i c = load_eight(states + 16), d = load_eight(states + 24);
	__m256i to[4] = { a, b, c, d };
	const struct first first = few ? load_first(t) : (struct first){ a, a };
	size_t i = 0;

	for (; i < nblocks && (size_t)(end - words) >= 2 * (BLOCK + 8); i++) {
		__m256i by[4] = { a, b, c, d };

		for (unsigned v = 0; contexts && v < 4; v++)
			by[v] = load_eight(contexts + BLOCK * i + 32 * v);
		for (unsigned v = 0; few && v < 4; v++)
			to[v] = _mm256_shuffle_epi8(first.symbols, by[v]);
		for (unsigned r = 0; r < RUN; r++) {
#define DECODE(x, v) \
	(few ? decode_few(t, first.freqs, r, &words, x, &by[v], &to[v]) \
	     : decode_eight(t, &words, x, contexts ? &by[v] : NULL, &to[v]))
			a = DECODE(a, 0);
			b = DECODE(b, 1);
			c = DECODE(c, 2);
			d = DECODE(d, 3);
#undef DECODE
		}
		for (unsigned v = 0; v < 4; v++)
			store_eight(symbols + BLOCK * i + 32 * v, to[v]);
	}
	store_eight(states, a);
	store_eight(states + 8, b);
	store_eight(states + 16, c);
	store_eight(states + 24, d);
	*done = i;
	return words;
}
#else
INLINE const uint8_t *decode_blocks(const struct tsr_rans_decoder *d, const uint8_t *contexts,
				    bool few, const uint8_t *words, const uint8_t *end,
				    uint32_t *states, uint8_t *symbols, size_t nblocks,
				    size_t *done)
{
	(void)few;
	for (*done = 0; *done < nblocks && words; ++*done)
		words = decode_block(d, contexts ? contexts + *done * BLOCK : NULL, words, end,
				     states, symbols + *done * BLOCK, BLOCK);
	return words;
}
#endif

/* --- Segments ------------------------------------------------------------------------------ */

/* What decode_blocks() leaves are less than these words; behind as many zeros it can go on. */
#define LAST_NBYTES (2 * (BLOCK + 8u))

/* @few: symbols other than the first of their table are few; a constant where this is inlined. */
INLINE bool decode(const struct tsr_rans_decoder *d, const uint8_t *contexts, bool few,
		   const uint8_t *words, size_t nwords, uint32_t *states, uint8_t *symbols,
		   size_t n)
{
	const uint8_t *end = words + 2 * nwords;
	const size_t nblocks = n / BLOCK;
	uint8_t last[2 * LAST_NBYTES];
	size_t done, left;

	words = decode_blocks(d, contexts, few, words, end, states, symbols, nblocks, &done);
	if (words && done < nblocks) {
		left = (size_t)(end - words);
		memcpy(last, words, left);
		memset(last + left, 0, LAST_NBYTES);
		end = last + left;
		words = decode_blocks(d, contexts ? contexts + done * BLOCK : NULL, few, last,
				      end + LAST_NBYTES, states, symbols + done * BLOCK,
				      nblocks - done, &left);
		done += left;
	}
	if (!words || words > end || done < nblocks)
		return false;
	return decode_block(d, contexts ? contexts + nblocks * BLOCK : NULL, words, end, states,
			    symbols + nblocks * BLOCK, n % BLOCK) == end;
}

bool TSR_FOR_ISA(rans_decode)(const struct tsr_rans_decoder *d, const uint8_t *words, size_t nwords,
			      uint32_t *states, uint8_t *symbols, size_t n)
{
	return decode(d, NULL, false, words, nwords, states, symbols, n);
}

bool TSR_FOR_ISA(rans_decode_contexts)(const struct tsr_rans_decoder *d, const uint8_t *contexts,
				       const uint8_t *words, size_t nwords, uint32_t *states,
				       uint8_t *symbols, size_t n)
{
	/* At a quarter of a bit per symbol two of three steps of eight lanes take the short way. */
	if (nwords < n / 64)
		return decode(d, contexts, true, words, nwords, states, symbols, n);
	return decode(d, contexts, false, words, nwords, states, symbols, n);
}
