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
#define INLINE static inline __attribute__((always_inline))

/* Symbols to push: bytes, or pairs with contexts in two bytes each.  The width is a constant when inlined. */
struct pushed {
	const uint8_t *bytes;
	unsigned width;
};

INLINE struct pushed skip(struct pushed p, size_t n)
{
	return (struct pushed){ p.bytes + n * p.width, p.width };
}

INLINE const struct tsr_rans_symbol *symbol_at(const struct tsr_rans_encoder *e, struct pushed p,
					       size_t i)
{
	uint16_t pair;

	if (p.width == 1)
		return &e->symbols[p.bytes[i]];
	memcpy(&pair, p.bytes + 2 * i, 2);
	return &e->symbols[pair];
}

/* --- One element after the other ----------------------------------------------------------- */

/* The first @n elements of a block, last to first. */
INLINE uint8_t *encode_block(const struct tsr_rans_encoder *e, struct pushed p, size_t n,
			     uint32_t *states, uint8_t *end)
{
	for (size_t r = RUN; r-- > 0;) {
		for (size_t lane = LANES; lane-- > 0;) {
			struct tsr_rans_symbol symbol;
			uint32_t x = states[lane];

			if (RUN * lane + r >= n)
				continue;
			symbol = *symbol_at(e, p, RUN * lane + r);
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
static inline __m256i load_eight(const void *from)
{
	return _mm256_loadu_si256((const __m256i *)from);
}

static inline __m128i load_sixteen(const void *from)
{
	return _mm_loadu_si128((const __m128i *)from);
}

static inline void store_eight(void *to, __m256i x)
{
	_mm256_storeu_si256((__m256i *)to, x);
}

/*
 * The symbols of eight lanes, RUN elements apart, those of lanes 0, 1, 4, 5 and of 2, 3, 6, 7 together.
 * Loads that fill a register, and blends, leave the ports free that shift and shuffle.
 */
INLINE void look_up_symbols(const struct tsr_rans_encoder *e, struct pushed p, __m256i *even,
			    __m256i *odd)
{
	long long s[8];

	for (unsigned lane = 0; lane < 8; lane++)
		memcpy(&s[lane], symbol_at(e, p, RUN * lane), 8);
#define AT(lane) _mm256_set1_epi64x(s[lane])
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

/* Push one symbol to each of eight lanes. */
INLINE __m256i encode_eight(const struct tsr_rans_encoder *e, struct pushed p, __m256i x,
			    uint8_t **end)
{
	__m256i even, odd, rest, limit, sheds, start, others;
	unsigned shed;

	look_up_symbols(e, p, &even, &odd);
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

INLINE uint8_t *encode_blocks(const struct tsr_rans_encoder *e, struct pushed p, size_t nblocks,
			      uint32_t *states, uint8_t *end)
{
	__m256i a = load_eight(states), b = load_eight(states + 8);
	__m256i c = load_eight(states + 16), d = load_eight(states + 24);

	while (nblocks-- > 0) {
		const struct pushed block = skip(p, nblocks * BLOCK);

		for (unsigned r = RUN; r-- > 0;) {
			d = encode_eight(e, skip(block, 96 + r), d, &end);
			c = encode_eight(e, skip(block, 64 + r), c, &end);
			b = encode_eight(e, skip(block, 32 + r), b, &end);
			a = encode_eight(e, skip(block, r), a, &end);
		}
	}
	store_eight(states, a);
	store_eight(states + 8, b);
	store_eight(states + 16, c);
	store_eight(states + 24, d);
	return end;
}

/*
 * The entries of eight slots.  Loads that fill a register, and blends, are several times as fast as a
 * gather of Zen or of an Intel processor with mitigations, and as fast as that of others.
 */
static inline __m256i look_up_slots(const uint32_t *slots, __m256i slot)
{
	uint32_t i[8];
	__m256i low, high;

	store_eight(i, slot);
#define AT(lane) _mm256_set1_epi32((int)slots[i[lane]])
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
	const __m128i loaded = load_sixteen(*words);
	const __m128i move = load_sixteen(d->move[mask]);
	const __m256i word = _mm256_cvtepu16_epi32(_mm_shuffle_epi8(loaded, move));
	const __m256i shift = _mm256_and_si256(lacks, _mm256_set1_epi32(16));

	*symbols = _mm256_or_si256(_mm256_srli_epi32(*symbols, 8), _mm256_slli_epi32(entry, 24));
	*words += 2 * (unsigned)__builtin_popcount(mask);
	return _mm256_or_si256(_mm256_sllv_epi32(popped, shift), word);
}

/* The entries of the first slots of all tables. */
static inline __m256i load_first(const struct tsr_rans_decoder *d)
{
	uint32_t first[TSR_RANS_TABLE_COUNT];

	for (unsigned table = 0; table < TSR_RANS_TABLE_COUNT; table++)
		first[table] = d->slots[table << BITS];
	return load_eight(first);
}

/*
 * decode_eight() if all lanes pop the first symbol of their table and lack no word, which costs no look-up in
 * memory; false otherwise.
 */
INLINE bool decode_first(__m256i first, __m256i *x, __m256i *contexts, __m256i *symbols)
{
	const __m256i in_table = _mm256_and_si256(*x, _mm256_set1_epi32((1 << BITS) - 1));
	const __m256i entry = _mm256_permutevar8x32_epi32(first, *contexts);
	const __m256i freq = _mm256_srli_epi32(entry, 20);
	const __m256i popped = _mm256_add_epi32(
		_mm256_mullo_epi32(freq, _mm256_srli_epi32(*x, BITS)), in_table);
	const __m256i has_word = _mm256_cmpeq_epi32(
		_mm256_max_epu32(popped, _mm256_set1_epi32(TSR_RANS_LOW)), popped);
	const __m256i all = _mm256_and_si256(_mm256_cmpgt_epi32(freq, in_table), has_word);

	if (_mm256_movemask_epi8(all) != -1)
		return false;
	*x = popped;
	*contexts = _mm256_srli_epi32(*contexts, 8);
	*symbols = _mm256_or_si256(_mm256_srli_epi32(*symbols, 8), _mm256_slli_epi32(entry, 24));
	return true;
}

/* Blocks while no word beyond @end is touched: one takes up to BLOCK words, and eight are loaded at once. */
INLINE const uint8_t *decode_blocks(const struct tsr_rans_decoder *t, const uint8_t *contexts,
				    bool few, const uint8_t *words, const uint8_t *end,
				    uint32_t *states, uint8_t *symbols, size_t nblocks,
				    size_t *done)
{
	__m256i a = load_eight(states), b = load_eight(states + 8);
	__m256i c = load_eight(states + 16), d = load_eight(states + 24);
	__m256i to[4] = { a, b, c, d }, first = few ? load_first(t) : a;
	size_t i = 0;

	for (; i < nblocks && (size_t)(end - words) >= 2 * (BLOCK + 8); i++) {
		__m256i by[4] = { a, b, c, d };

		for (unsigned v = 0; contexts && v < 4; v++)
			by[v] = load_eight(contexts + BLOCK * i + 32 * v);
		for (unsigned r = 0; r < RUN; r++) {
			if (!few || !decode_first(first, &a, &by[0], &to[0]))
				a = decode_eight(t, &words, a, contexts ? &by[0] : NULL, &to[0]);
			if (!few || !decode_first(first, &b, &by[1], &to[1]))
				b = decode_eight(t, &words, b, contexts ? &by[1] : NULL, &to[1]);
			if (!few || !decode_first(first, &c, &by[2], &to[2]))
				c = decode_eight(t, &words, c, contexts ? &by[2] : NULL, &to[2]);
			if (!few || !decode_first(first, &d, &by[3], &to[3]))
				d = decode_eight(t, &words, d, contexts ? &by[3] : NULL, &to[3]);
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
INLINE uint8_t *encode_blocks(const struct tsr_rans_encoder *e, struct pushed p, size_t nblocks,
			      uint32_t *states, uint8_t *end)
{
	while (nblocks-- > 0)
		end = encode_block(e, skip(p, nblocks * BLOCK), BLOCK, states, end);
	return end;
}

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
	return encode(e, (struct pushed){ symbols, 1 }, n, states, end);
}

uint8_t *TSR_FOR_ISA(rans_encode_pairs)(const struct tsr_rans_encoder *e, const uint16_t *pairs,
					size_t n, uint32_t *states, uint8_t *end)
{
	return encode(e, (struct pushed){ (const uint8_t *)pairs, 2 }, n, states, end);
}

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

/* --- Elements and streams ------------------------------------------------------------------ */

/* Streams of elements of two bytes, in lines of their own so that they become SIMD code. */
static void split_2(bool rotated, const uint8_t *restrict plain, size_t n, uint8_t *restrict low,
		    uint8_t *restrict high)
{
	const unsigned left = rotated ? 1 : 0, right = rotated ? 15 : 16;

	for (size_t i = 0; i < n; i++) {
		const unsigned value = plain[2 * i] | (unsigned)plain[2 * i + 1] << 8;
		const unsigned turned = value << left | value >> right;

		low[i] = (uint8_t)turned;
		high[i] = (uint8_t)(turned >> 8);
	}
}

static void merge_2(bool rotated, const uint8_t *restrict low, const uint8_t *restrict high,
		    size_t n, uint8_t *restrict plain)
{
	const unsigned right = rotated ? 1 : 0, left = rotated ? 15 : 16;

	for (size_t i = 0; i < n; i++) {
		const unsigned value = low[i] | (unsigned)high[i] << 8;
		const unsigned turned = value >> right | value << left;

		plain[2 * i] = (uint8_t)turned;
		plain[2 * i + 1] = (uint8_t)(turned >> 8);
	}
}

/* Wider elements, of @width bytes, which is a constant where this is inlined. */
static inline __attribute__((always_inline)) void split(unsigned width, bool rotated,
							const uint8_t *plain, size_t n,
							uint8_t *streams)
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
							const uint8_t *streams, size_t n,
							uint8_t *plain)
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
	if (kind.width == 2)
		split_2(kind.rotated, plain, n, streams, streams + TSR_ENTROPY_PIECE);
	else if (kind.width == 4)
		split(4, kind.rotated, plain, n, streams);
	else
		split(8, false, plain, n, streams);
}

void TSR_FOR_ISA(rans_merge)(struct tsr_entropy_kind kind, const uint8_t *streams, size_t n,
			     uint8_t *plain)
{
	if (kind.width == 2)
		merge_2(kind.rotated, streams, streams + TSR_ENTROPY_PIECE, n, plain);
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

/* Symbols with contexts are counted while they are in the first cache. */
#define COUNTED 2048u

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

void TSR_FOR_ISA(rans_count_pairs)(const uint8_t *symbols, const uint8_t *contexts, size_t n,
				   unsigned ncontexts, uint16_t *pairs, uint32_t *count)
{
	uint32_t odd[256 * TSR_RANS_CONTEXT_COUNT];

	memset(odd, 0, 256 * ncontexts * sizeof(*odd));
	memset(count, 0, 256 * ncontexts * sizeof(*count));
	for (size_t at = 0; at < n; at += COUNTED) {
		const size_t end = n - at < COUNTED ? n : at + COUNTED;

		for (size_t i = at; i < end; i++)
			pairs[i] = (uint16_t)(contexts[i] << 8 | symbols[i]);
		count_pairs(pairs + at, end - at, count, odd);
	}
	for (unsigned pair = 0; pair < 256 * ncontexts; pair++)
		count[pair] += odd[pair];
}
